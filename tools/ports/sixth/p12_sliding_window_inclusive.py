"""NVIDIA-NeMo/Megatron-Bridge#2656: the sliding_window goes into a (left, right) tuple without subtracting 1.

The tuple is inclusive, so (W, 0) sees W + 1 keys; Hugging Face counts the current token in W.  Every other layer
slides, the rest are global.  The port is sequence-first and splits one fused qkv projection by query groups.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB, DIM, HEADS, KV, HEAD_DIM, WINDOW = 44, 20, 4, 2, 6, 4


class Attention(nn.Module):
    def __init__(self, sliding_window: int | None) -> None:
        super().__init__()
        self.q_proj = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.k_proj = nn.Linear(DIM, KV * HEAD_DIM)
        self.v_proj = nn.Linear(DIM, KV * HEAD_DIM)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, DIM)
        self.sliding_window = sliding_window

    def mask(self, length: int) -> Tensor:
        rows = torch.arange(length).unsqueeze(1)
        cols = torch.arange(length).unsqueeze(0)
        allowed = cols <= rows
        if self.sliding_window is not None:
            allowed &= cols > rows - self.sliding_window
        return torch.zeros(length, length).masked_fill(~allowed, torch.finfo(torch.float32).min)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(b, t, KV, HEAD_DIM).transpose(1, 2).repeat_interleave(HEADS // KV, 1)
        v = self.v_proj(x).view(b, t, KV, HEAD_DIM).transpose(1, 2).repeat_interleave(HEADS // KV, 1)
        weights = torch.softmax(torch.matmul(q, k.mT) / HEAD_DIM**0.5 + self.mask(t), dim=-1)
        return self.o_proj(torch.matmul(weights, v).transpose(1, 2).contiguous().view(b, t, -1))


class Layer(nn.Module):
    def __init__(self, sliding_window: int | None) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(DIM)
        self.attn = Attention(sliding_window)
        self.ln_2 = nn.LayerNorm(DIM)
        self.fc = nn.Linear(DIM, 48)
        self.proj = nn.Linear(48, DIM)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x))))


class HfDecoder(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(64, DIM)
        self.h = nn.ModuleList(Layer(WINDOW if i % 2 == 0 else None) for i in range(depth))
        self.ln_f = nn.LayerNorm(DIM)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for layer in self.h:
            x = layer(x)
        return self.ln_f(x) @ self.wte.weight.T


class DotProductAttention(nn.Module):
    """window_size follows flash attention: keys in [i - left, i + right], -1 for no bound."""

    def __init__(self, window_size: tuple[int, int]) -> None:
        super().__init__()
        self.window_size = window_size

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        left, right = self.window_size
        offset = torch.arange(k.shape[0])[None, :] - torch.arange(q.shape[0])[:, None]
        visible = torch.ones_like(offset, dtype=torch.bool)
        if left >= 0:
            visible = visible & (offset >= -left)
        if right >= 0:
            visible = visible & (offset <= right)
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
        return out.permute(2, 0, 1, 3).flatten(2)


class SelfAttention(nn.Module):
    def __init__(self, window_size: tuple[int, int]) -> None:
        super().__init__()
        self.linear_qkv = nn.Linear(DIM, (HEADS + 2 * KV) * HEAD_DIM)
        self.core_attention = DotProductAttention(window_size)
        self.linear_proj = nn.Linear(HEADS * HEAD_DIM, DIM)

    def forward(self, hidden: Tensor) -> Tensor:
        s, b, _ = hidden.shape
        per_group = HEADS // KV + 2
        mixed = self.linear_qkv(hidden).view(s, b, KV, per_group, HEAD_DIM)
        q = mixed[:, :, :, :-2].reshape(s, b, HEADS, HEAD_DIM)
        return self.linear_proj(self.core_attention(q, mixed[:, :, :, -2], mixed[:, :, :, -1]))


class TransformerLayer(nn.Module):
    def __init__(self, window_size: tuple[int, int]) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(DIM)
        self.self_attention = SelfAttention(window_size)
        self.pre_mlp_layernorm = nn.LayerNorm(DIM)
        self.linear_fc1 = nn.Linear(DIM, 48)
        self.linear_fc2 = nn.Linear(48, DIM)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.self_attention(self.input_layernorm(hidden))
        return hidden + self.linear_fc2(F.gelu(self.linear_fc1(self.pre_mlp_layernorm(hidden))))


def fuse_qkv(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tail = q.shape[1:]
    q = q.view(KV, HEADS // KV, HEAD_DIM, *tail)
    k = k.view(KV, 1, HEAD_DIM, *tail)
    v = v.view(KV, 1, HEAD_DIM, *tail)
    return torch.cat([q, k, v], dim=1).reshape(-1, *tail)


class BridgedGPT(nn.Module):
    def __init__(self, source: HfDecoder, left: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, DIM)
        self.position_embeddings = nn.Embedding(64, DIM)
        self.layers = nn.ModuleList(
            TransformerLayer((-1 if layer.attn.sliding_window is None else left, 0)) for layer in source.h
        )
        self.final_layernorm = nn.LayerNorm(DIM)
        self.word_embeddings.load_state_dict(source.wte.state_dict())
        self.position_embeddings.load_state_dict(source.wpe.state_dict())
        self.final_layernorm.load_state_dict(source.ln_f.state_dict())
        for src, dst in zip(source.h, self.layers, strict=True):
            dst.input_layernorm.load_state_dict(src.ln_1.state_dict())
            dst.pre_mlp_layernorm.load_state_dict(src.ln_2.state_dict())
            dst.linear_fc1.load_state_dict(src.fc.state_dict())
            dst.linear_fc2.load_state_dict(src.proj.state_dict())
            dst.self_attention.linear_proj.load_state_dict(src.attn.o_proj.state_dict())
            a = src.attn
            dst.self_attention.linear_qkv.load_state_dict(
                {
                    "weight": fuse_qkv(a.q_proj.weight.data, a.k_proj.weight.data, a.v_proj.weight.data),
                    "bias": fuse_qkv(a.q_proj.bias.data, a.k_proj.bias.data, a.v_proj.bias.data),
                }
            )

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.word_embeddings(ids.T) + self.position_embeddings.weight[: ids.shape[1], None]
        for layer in self.layers:
            hidden = layer(hidden)
        return F.linear(self.final_layernorm(hidden), self.word_embeddings.weight).transpose(0, 1)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(112)
    original = HfDecoder().eval()
    port = BridgedGPT(original, left=WINDOW - 1 if fixed else WINDOW).eval()
    return original, port, (torch.randint(0, VOCAB, (2, 12)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
