"""pie-project/pie#603: partial rope takes its frequencies and pairs from head_dim instead of the rotary width.

Only rotary_dim = 8 of the 16 channels of a head turn; frequency i is theta^(-2i / 8), channel i pairs with i + 4.  The
kernel used theta^(-2i / 16) and paired i with i + 8.  At position 0 the two agree.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RotaryEmbedding(nn.Module):
    def __init__(self, rotary_dim: int, base: float) -> None:
        super().__init__()
        inv_freq = 1.0 / base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        freqs = torch.arange(length, dtype=torch.float32)[:, None] * self.inv_freq[None]
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rotary_dim = cos.shape[-1]
    rot, passed = x[..., :rotary_dim], x[..., rotary_dim:]
    first, second = rot.chunk(2, dim=-1)
    turned = rot * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, passed), dim=-1)


class GatedAttention(nn.Module):
    """Query projection carries an output gate per head, as in the Qwen3-Next family."""

    def __init__(self, dim: int, heads: int, kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q_proj = nn.Linear(dim, heads * head_dim * 2, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, dim, bias=False)
        self.q_norm = nn.RMSNorm(head_dim, eps=1e-6)
        self.k_norm = nn.RMSNorm(head_dim, eps=1e-6)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, gate = self.q_proj(x).view(b, t, self.heads, 2 * self.head_dim).chunk(2, dim=-1)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.head_dim)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q = apply_rotary(self.q_norm(q).transpose(1, 2), cos, sin)
        k = apply_rotary(self.k_norm(k).transpose(1, 2), cos, sin)
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = torch.matmul(q, k.transpose(2, 3)) * self.head_dim**-0.5
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        out = torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(b, t, -1)
        return self.o_proj(out * torch.sigmoid(gate.reshape(b, t, -1)))


class DecoderLayer(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(dim, eps=1e-6)
        self.self_attn = GatedAttention(dim, heads=4, kv_heads=2, head_dim=16)
        self.post_attention_layernorm = nn.RMSNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class QwenLike(nn.Module):
    def __init__(self, vocab: int = 50, dim: int = 24, depth: int = 2) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.rotary_emb = RotaryEmbedding(rotary_dim=8, base=10000.0)
        self.layers = nn.ModuleList(DecoderLayer(dim) for _ in range(depth))
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        cos, sin = self.rotary_emb(ids.shape[1])
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def rope_partial(x: Tensor, positions: Tensor, angles: int, width: int, theta: float) -> Tensor:
    """Turns `angles` pairs (i, i + width / 2) of the last axis; x is (tokens, heads, head_dim)."""
    pair = torch.arange(angles)
    phase = positions[:, None, None].float() * theta ** (-2.0 * pair / width)
    low, high = x[..., pair], x[..., pair + width // 2]
    out = x.clone()
    out[..., pair] = low * phase.cos() - high * phase.sin()
    out[..., pair + width // 2] = low * phase.sin() + high * phase.cos()
    return out


class PieAttention(nn.Module):
    def __init__(self, source: GatedAttention, rope_width: int) -> None:
        super().__init__()
        self.dims = (source.heads, source.kv_heads, source.head_dim)
        self.rope_width = rope_width
        heads, _, hd = self.dims
        query, gate = source.q_proj.weight.detach().view(heads, 2, hd, -1).unbind(1)
        qkvg = torch.cat(
            [query.flatten(0, 1), source.k_proj.weight.detach(), source.v_proj.weight.detach(), gate.flatten(0, 1)]
        )
        self.qkvg = nn.Parameter(qkvg.T.contiguous())
        self.scale_q = nn.Parameter(source.q_norm.weight.detach().clone())
        self.scale_k = nn.Parameter(source.k_norm.weight.detach().clone())
        self.out = nn.Parameter(source.o_proj.weight.detach().T.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """One sequence at a time, (tokens, dim)."""
        heads, kv, hd = self.dims
        q, k, v, gate = (x @ self.qkvg).split([heads * hd, kv * hd, kv * hd, heads * hd], dim=-1)
        q = F.rms_norm(q.unflatten(-1, (heads, hd)), (hd,), self.scale_q, 1e-6)
        k = F.rms_norm(k.unflatten(-1, (kv, hd)), (hd,), self.scale_k, 1e-6)
        positions = torch.arange(x.shape[0])
        q = rope_partial(q, positions, angles=4, width=self.rope_width, theta=10000.0)
        k = rope_partial(k, positions, angles=4, width=self.rope_width, theta=10000.0)
        grouped = q.unflatten(1, (kv, heads // kv))
        scores = torch.einsum("qgrd,kgd->grqk", grouped, k) / hd**0.5
        scores = scores + torch.full(scores.shape[-2:], float("-inf")).triu(1)
        mixed = torch.einsum("grqk,kgd->qgrd", scores.softmax(-1), v.unflatten(-1, (kv, hd)))
        return (mixed.flatten(1) * gate.sigmoid()) @ self.out


class PieLayer(nn.Module):
    def __init__(self, source: DecoderLayer, rope_width: int) -> None:
        super().__init__()
        self.norm_in = nn.RMSNorm(source.input_layernorm.normalized_shape, eps=1e-6)
        self.norm_in.load_state_dict(source.input_layernorm.state_dict())
        self.attention = PieAttention(source.self_attn, rope_width)
        self.norm_mlp = nn.RMSNorm(source.post_attention_layernorm.normalized_shape, eps=1e-6)
        self.norm_mlp.load_state_dict(source.post_attention_layernorm.state_dict())
        self.fc1, self.fc2 = nn.Linear(24, 48), nn.Linear(48, 24)
        self.fc1.load_state_dict(source.mlp[0].state_dict())
        self.fc2.load_state_dict(source.mlp[2].state_dict())

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_in(x))
        return x + self.fc2(F.silu(self.fc1(self.norm_mlp(x))))


class PieModel(nn.Module):
    def __init__(self, source: QwenLike, rope_width: int) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(source.embed_tokens.weight.detach().clone())
        self.stack = nn.ModuleList(PieLayer(layer, rope_width) for layer in source.layers)
        self.norm_out = nn.RMSNorm(24, eps=1e-6)
        self.norm_out.load_state_dict(source.norm.state_dict())
        self.unembed = nn.Parameter(source.lm_head.weight.detach().clone())

    def run(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for layer in self.stack:
            x = layer(x)
        return self.norm_out(x) @ self.unembed.T

    def forward(self, ids: Tensor) -> Tensor:
        return torch.stack([self.run(row) for row in ids])


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(113)
    original = QwenLike().eval()
    port = PieModel(original, rope_width=8 if fixed else 16).eval()
    return original, port, (torch.randint(0, 50, (2, 13)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().amax(dim=(0, 2)))
