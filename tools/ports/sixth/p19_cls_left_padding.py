"""StarlightSearch/EmbedAnything#213: CLS pooling takes position 0 even when the batch is padded on the left.

A ModernBERT-like encoder (rotary positions, GeGLU, no biases).  The port packs Wqkv, expands the padding mask to four
dimensions for scaled_dot_product_attention and pools in a separate module; embeddings are L2 normalised.
"""

from enum import Enum

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Rope(nn.Module):
    def __init__(self, head_dim: int, theta: float = 160000.0) -> None:
        super().__init__()
        self.register_buffer("inv_freq", theta ** (-torch.arange(0, head_dim, 2).float() / head_dim))

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.outer(torch.arange(x.shape[-2]).float(), self.inv_freq)
        cos = torch.cat([angle.cos(), angle.cos()], dim=-1)
        sin = torch.cat([angle.sin(), angle.sin()], dim=-1)
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], dim=-1) * sin


class EncoderAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.Wo = nn.Linear(dim, dim, bias=False)
        self.rotary = Rope(dim // heads)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        b, t, d = x.shape
        q = self.rotary(self.q(x).view(b, t, self.heads, -1).transpose(1, 2))
        k = self.rotary(self.k(x).view(b, t, self.heads, -1).transpose(1, 2))
        v = self.v(x).view(b, t, self.heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5
        scores = scores + (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        return self.Wo((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, d))


class EncoderLayer(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attn_norm = nn.LayerNorm(dim, bias=False)
        self.attn = EncoderAttention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim, bias=False)
        self.Wi = nn.Linear(dim, 2 * hidden, bias=False)
        self.Wo = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x), mask)
        value, gate = self.Wi(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.Wo(F.gelu(value) * gate)


class SentenceEncoder(nn.Module):
    def __init__(self, vocab: int = 50, dim: int = 24, heads: int = 3, hidden: int = 30, depth: int = 2) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim, bias=False)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads, hidden) for _ in range(depth))
        self.final_norm = nn.LayerNorm(dim, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.norm(self.tok_embeddings(input_ids))
        for layer in self.layers:
            x = layer(x, attention_mask)
        x = self.final_norm(x)
        first_real = attention_mask.argmax(dim=1)
        pooled = x[torch.arange(x.shape[0]), first_real]
        return F.normalize(pooled, p=2, dim=-1)


class Pooling(Enum):
    FIRST_INDEX = "first_index"
    FIRST_REAL = "first_real"
    MEAN = "mean"


class Pooler(nn.Module):
    def __init__(self, mode: Pooling) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, output: Tensor, mask: Tensor) -> Tensor:
        if self.mode is Pooling.MEAN:
            weights = mask.unsqueeze(-1).to(output.dtype)
            return (output * weights).sum(1) / weights.sum(1)
        if self.mode is Pooling.FIRST_INDEX:
            return output.select(1, 0)
        padding = (mask.cumsum(1) == 0).sum(1)
        return output.gather(1, padding.view(-1, 1, 1).expand(-1, 1, output.shape[-1])).squeeze(1)


class CandleAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, xs: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        qkv = self.qkv(xs).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = (self.rotate(t, cos, sin) for t in (qkv[0], qkv[1]))
        out = F.scaled_dot_product_attention(q, k, qkv[2], attn_mask=mask)
        return self.proj(out.permute(0, 2, 1, 3).flatten(-2))

    @staticmethod
    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        x1, x2 = x[..., :half], x[..., half:]
        return torch.cat([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1)


class CandleLayer(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, bias=False)
        self.attention = CandleAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, bias=False)
        self.wi_value = nn.Linear(dim, hidden, bias=False)
        self.wi_gate = nn.Linear(dim, hidden, bias=False)
        self.wo = nn.Linear(hidden, dim, bias=False)

    def forward(self, xs: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        xs = xs + self.attention(self.norm1(xs), mask, cos, sin)
        residual, xs = xs, self.norm2(xs)
        return residual + self.wo(F.gelu(self.wi_value(xs)) * self.wi_gate(xs))


class CandleEmbedder(nn.Module):
    def __init__(self, source: SentenceEncoder, pooling: Pooling) -> None:
        super().__init__()
        vocab, dim = source.tok_embeddings.weight.shape
        heads = source.layers[0].attn.heads
        hidden = source.layers[0].Wo.in_features
        self.embeddings = nn.Embedding(vocab, dim)
        self.emb_norm = nn.LayerNorm(dim, bias=False)
        self.encoder = nn.ModuleList(CandleLayer(dim, heads, hidden) for _ in source.layers)
        self.out_norm = nn.LayerNorm(dim, bias=False)
        self.pooler = Pooler(pooling)
        self.register_buffer("freqs", source.layers[0].attn.rotary.inv_freq.clone())
        self.embeddings.load_state_dict(source.tok_embeddings.state_dict())
        self.emb_norm.load_state_dict(source.norm.state_dict())
        self.out_norm.load_state_dict(source.final_norm.state_dict())
        with torch.no_grad():
            for src, dst in zip(source.layers, self.encoder, strict=True):
                dst.norm1.weight.copy_(src.attn_norm.weight)
                dst.norm2.weight.copy_(src.mlp_norm.weight)
                dst.attention.qkv.weight.copy_(torch.cat([src.attn.q.weight, src.attn.k.weight, src.attn.v.weight]))
                dst.attention.proj.weight.copy_(src.attn.Wo.weight)
                value, gate = src.Wi.weight.chunk(2)
                dst.wi_value.weight.copy_(value)
                dst.wi_gate.weight.copy_(gate)
                dst.wo.weight.copy_(src.Wo.weight)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        xs = self.emb_norm(self.embeddings(input_ids))
        angle = torch.arange(input_ids.shape[1]).float().unsqueeze(1) * self.freqs
        mask = attention_mask.bool()[:, None, None, :]
        for layer in self.encoder:
            xs = layer(xs, mask, angle.cos(), angle.sin())
        pooled = self.pooler(self.out_norm(xs), attention_mask)
        return pooled / pooled.norm(dim=-1, keepdim=True)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(119)
    original = SentenceEncoder().eval()
    port = CandleEmbedder(original, Pooling.FIRST_REAL if fixed else Pooling.FIRST_INDEX).eval()
    ids = torch.randint(3, 50, (3, 10))
    mask = torch.ones(3, 10, dtype=torch.long)
    for row, pad in enumerate((0, 3, 5)):
        ids[row, :pad] = 0
        mask[row, :pad] = 0
        ids[row, pad] = 1
    return original, port, (ids, mask)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().amax(dim=1))
