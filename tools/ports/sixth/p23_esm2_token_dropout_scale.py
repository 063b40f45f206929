"""escalante-bio/mosaic#76: the trunk of ESM2 is fed embeddings without the token-dropout preprocessing.

ESM2 rescales embeddings by (1 - 0.15 * 0.8) / (1 - observed mask ratio) also at inference, so even a sequence without a
single mask is multiplied by 0.88.  The port takes soft one-hot sequences, pads nothing, and mixes with einsum.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLS, PAD, EOS, MASK, ALPHABET = 0, 1, 2, 24, 25


class RotaryEmbedding(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, dim, 2).float() / dim))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        t = torch.arange(q.shape[-2]).float()
        freqs = torch.einsum("i,j->ij", t, self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        return self.turn(q, emb), self.turn(k, emb)

    @staticmethod
    def turn(x: Tensor, emb: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        return x * emb.cos() + torch.cat((-x2, x1), dim=-1) * emb.sin()


class EsmLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.self_attn_layer_norm = nn.LayerNorm(dim)
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)
        self.rot_emb = RotaryEmbedding(dim // heads)
        self.final_layer_norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def attend(self, x: Tensor, padding: Tensor) -> Tensor:
        b, t, d = x.shape
        q = self.q_proj(x) * (d // self.heads) ** -0.5
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, self.k_proj(x), self.v_proj(x)))
        q, k = self.rot_emb(q, k)
        weights = (q @ k.transpose(-1, -2)).masked_fill(padding[:, None, None], float("-inf")).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(b, t, d))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = x + self.attend(self.self_attn_layer_norm(x), padding)
        h = self.fc1(self.final_layer_norm(x))
        h = h * 0.5 * (1.0 + torch.erf(h / math.sqrt(2.0)))
        return x + self.fc2(h)


class ESM2(nn.Module):
    def __init__(self, dim: int = 18, heads: int = 3, depth: int = 2, token_dropout: bool = True) -> None:
        super().__init__()
        self.token_dropout = token_dropout
        self.embed_tokens = nn.Embedding(ALPHABET, dim, padding_idx=PAD)
        self.layers = nn.ModuleList(EsmLayer(dim, heads) for _ in range(depth))
        self.emb_layer_norm_after = nn.LayerNorm(dim)
        self.lm_dense = nn.Linear(dim, dim)
        self.lm_norm = nn.LayerNorm(dim)
        self.lm_bias = nn.Parameter(torch.randn(ALPHABET) * 0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens.eq(PAD)
        x = self.embed_tokens(tokens)
        if self.token_dropout:
            x = x.masked_fill((tokens == MASK).unsqueeze(-1), 0.0)
            lengths = (~padding).sum(-1)
            observed = (tokens == MASK).sum(-1).to(x.dtype) / lengths
            x = x * (1 - 0.15 * 0.8) / (1 - observed)[:, None, None]
        x = x * (1 - padding.unsqueeze(-1).type_as(x))
        for layer in self.layers:
            x = layer(x, padding)
        x = self.emb_layer_norm_after(x)
        x = self.lm_norm(F.gelu(self.lm_dense(x)))
        return F.linear(x, self.embed_tokens.weight) + self.lm_bias


class TrunkLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.heads = heads

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        q, k = (torch.cat([a * cos - b * sin, b * cos + a * sin], -1) for a, b in (q.chunk(2, -1), k.chunk(2, -1)))
        weights = torch.einsum("bqhc,bkhc->bhqk", q, k).mul(q.shape[-1] ** -0.5).softmax(-1)
        x = x + self.out(torch.einsum("bhqk,bkhc->bqhc", weights, v).flatten(-2))
        return x + self.mlp(x)


class SoftESM2(nn.Module):
    """Takes a distribution over the alphabet at every position, for design by gradient."""

    def __init__(self, source: ESM2, preprocess: bool) -> None:
        super().__init__()
        vocab, dim = source.embed_tokens.weight.shape
        heads = source.layers[0].heads
        self.preprocess = preprocess
        self.table = nn.Parameter(source.embed_tokens.weight.detach().clone())
        self.trunk = nn.ModuleList(TrunkLayer(dim, heads) for _ in source.layers)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.logits = nn.Linear(dim, vocab)
        self.register_buffer("freqs", source.layers[0].rot_emb.inv_freq.clone())
        for src, dst in zip(source.layers, self.trunk, strict=True):
            dst.norm.load_state_dict(src.self_attn_layer_norm.state_dict())
            dst.qkv.load_state_dict(
                {
                    key: torch.cat([p.state_dict()[key] for p in (src.q_proj, src.k_proj, src.v_proj)])
                    for key in ("weight", "bias")
                }
            )
            dst.out.load_state_dict(src.out_proj.state_dict())
            dst.mlp[0].load_state_dict(src.final_layer_norm.state_dict())
            dst.mlp[1].load_state_dict(src.fc1.state_dict())
            dst.mlp[3].load_state_dict(src.fc2.state_dict())
        self.head[0].load_state_dict(source.emb_layer_norm_after.state_dict())
        self.head[1].load_state_dict(source.lm_dense.state_dict())
        self.head[3].load_state_dict(source.lm_norm.state_dict())
        self.logits.load_state_dict({"weight": source.embed_tokens.weight.detach(), "bias": source.lm_bias.detach()})

    def embed(self, soft: Tensor) -> Tensor:
        if not self.preprocess:
            return soft @ self.table
        without_mask = soft.clone()
        without_mask[..., MASK] = 0.0
        ratio = soft[..., MASK].mean(dim=-1)[:, None, None]
        return without_mask @ self.table * (0.88 / (1 - ratio))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(F.one_hot(tokens, ALPHABET).float())
        angle = torch.arange(tokens.shape[1]).float()[:, None, None] * self.freqs
        for layer in self.trunk:
            x = layer(x, angle.cos(), angle.sin())
        return self.logits(self.head(x))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(123)
    original = ESM2().eval()
    port = SoftESM2(original, preprocess=fixed).eval()
    tokens = torch.randint(4, 24, (2, 14))
    tokens[:, 0], tokens[:, -1] = CLS, EOS
    return original, port, (tokens,)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
