"""vllm-project/vllm-metal#665: the attention soft cap of Gemma 2 is hard-coded to 0.0 (off) in the kernel call.

The cap on the final logits is applied; only the one on the attention scores is dropped.  The port puts keys and values
in pages of a block cache and gathers them again before attention.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB, DIM, HEADS, KV_HEADS, HEAD_DIM, FFN = 40, 24, 4, 2, 8, 36
ATTN_CAP, FINAL_CAP, PRE_ATTN_SCALAR, PAGE = 5.0, 30.0, 6.0, 4


class Gemma2Norm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), 1.0 + self.weight, 1e-6)


class Rotary(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        half = HEAD_DIM // 2
        angle = torch.arange(x.shape[-2]).float()[:, None] * 10000.0 ** (-torch.arange(half).float() / half)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


class Gemma2Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)
        self.rope = Rotary()

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.rope(self.q_proj(x).view(b, t, HEADS, HEAD_DIM).transpose(1, 2)) * PRE_ATTN_SCALAR**-0.5
        k = self.rope(self.k_proj(x).view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2))
        v = self.v_proj(x).view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, dim=1) for y in (k, v))
        scores = q @ k.transpose(-1, -2)
        scores = torch.tanh(scores / ATTN_CAP) * ATTN_CAP
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Gemma2MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(DIM, FFN, bias=False)
        self.up_proj = nn.Linear(DIM, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Gemma2Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = Gemma2Norm(DIM)
        self.self_attn = Gemma2Attention()
        self.post_attention_layernorm = Gemma2Norm(DIM)
        self.pre_feedforward_layernorm = Gemma2Norm(DIM)
        self.mlp = Gemma2MLP()
        self.post_feedforward_layernorm = Gemma2Norm(DIM)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x)))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Gemma2(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Gemma2Layer() for _ in range(depth))
        self.norm = Gemma2Norm(DIM)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids) * math.sqrt(DIM)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.embed_tokens.weight)
        return torch.tanh(logits / FINAL_CAP) * FINAL_CAP


class BlockCache:
    """Pages of PAGE tokens, handed out in an arbitrary order."""

    def __init__(self, sequences: int, length: int) -> None:
        pages = -(-length // PAGE)
        self.table = torch.arange(sequences * pages).flip(0).view(sequences, pages)
        self.store = torch.zeros(2, sequences * pages, PAGE, KV_HEADS, HEAD_DIM)

    def write(self, keys: Tensor, values: Tensor) -> None:
        for row, pages in enumerate(self.table):
            for slot in range(keys.shape[1]):
                self.store[0, pages[slot // PAGE], slot % PAGE] = keys[row, slot]
                self.store[1, pages[slot // PAGE], slot % PAGE] = values[row, slot]

    def read(self, row: int, length: int) -> tuple[Tensor, Tensor]:
        gathered = self.store[:, self.table[row]].flatten(1, 2)[:, :length]
        return gathered[0], gathered[1]


def paged_attention(q: Tensor, cache: BlockCache, kv_heads: int, scale: float, softcap: float) -> Tensor:
    """q is (sequences, tokens, heads, head_dim); a softcap of 0 means none."""
    length = q.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    rows = []
    for row, query in enumerate(q):
        keys, values = cache.read(row, length)
        grouped = query.unflatten(1, (kv_heads, -1))
        scores = torch.einsum("qkgd,skd->kgqs", grouped, keys) * scale
        if softcap > 0.0:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.where(causal, float("-inf")).softmax(dim=-1)
        rows.append(torch.einsum("kgqs,skd->qkgd", weights, values).flatten(1))
    return torch.stack(rows)


class MetalLayer(nn.Module):
    def __init__(self, source: Gemma2Layer, softcap: float) -> None:
        super().__init__()
        att, mlp = source.self_attn, source.mlp
        self.softcap = softcap
        self.qkv = nn.Parameter(torch.cat([att.q_proj.weight, att.k_proj.weight, att.v_proj.weight]).detach())
        self.o = nn.Parameter(att.o_proj.weight.detach().clone())
        self.gate_up = nn.Parameter(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach())
        self.down = nn.Parameter(mlp.down_proj.weight.detach().clone())
        self.norms = nn.ModuleList(nn.RMSNorm(DIM, eps=1e-6) for _ in range(4))
        originals = (
            source.input_layernorm,
            source.post_attention_layernorm,
            source.pre_feedforward_layernorm,
            source.post_feedforward_layernorm,
        )
        with torch.no_grad():
            for norm, original in zip(self.norms, originals, strict=True):
                norm.weight.copy_(original.weight + 1.0)

    @staticmethod
    def rope(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        freqs = torch.exp(torch.arange(half).float() * (-math.log(10000.0) / half))
        phase = torch.polar(torch.ones(x.shape[1], half), torch.outer(torch.arange(x.shape[1]).float(), freqs))
        turned = torch.complex(x[..., :half], x[..., half:]) * phase[:, None]
        return torch.cat([turned.real, turned.imag], dim=-1)

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = F.linear(x, self.qkv).unflatten(-1, (-1, HEAD_DIM)).split([HEADS, KV_HEADS, KV_HEADS], dim=2)
        cache = BlockCache(x.shape[0], x.shape[1])
        cache.write(self.rope(k), v)
        return F.linear(paged_attention(self.rope(q), cache, KV_HEADS, PRE_ATTN_SCALAR**-0.5, self.softcap), self.o)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.norms[1](self.attention(self.norms[0](x)))
        gate, up = F.linear(self.norms[2](x), self.gate_up).chunk(2, dim=-1)
        return x + self.norms[3](F.linear(F.gelu(gate, approximate="tanh") * up, self.down))


class MetalGemma2(nn.Module):
    def __init__(self, source: Gemma2, softcap: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(source.embed_tokens.weight.detach().clone())
        self.model = nn.ModuleList(MetalLayer(layer, softcap) for layer in source.layers)
        self.out_norm = nn.RMSNorm(DIM, eps=1e-6)
        with torch.no_grad():
            self.out_norm.weight.copy_(source.norm.weight + 1.0)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * DIM**0.5
        for layer in self.model:
            x = layer(x)
        logits = self.out_norm(x) @ self.embedding.weight.mT
        return FINAL_CAP * torch.tanh(logits / FINAL_CAP)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(125)
    original = Gemma2().eval()
    with torch.no_grad():
        for layer in original.layers:
            layer.self_attn.q_proj.weight.mul_(2.5)
            layer.self_attn.k_proj.weight.mul_(2.5)
    port = MetalGemma2(original, softcap=ATTN_CAP if fixed else 0.0).eval()
    return original, port, (torch.randint(0, VOCAB, (2, 9)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
