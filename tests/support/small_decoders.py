"""Two decoders of one architecture under other names, each part of which can be written in the ways libraries do."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

D, HEADS, INNER, WORDS = 32, 4, 48, 50
HEAD = D // HEADS
TOKENS = torch.arange(18).reshape(2, 9) * 7 % WORDS

# Norms: in float32, whatever the dtype of the model ------------------------------------------------


class PowerNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(D) + 0.5), 1e-6

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class ProductNorm(PowerNorm):
    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(torch.mean(wide * wide, dim=-1, keepdim=True) + self.eps)
        return wide.to(x.dtype) * self.weight


class FusedNorm(PowerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (D,), None, self.eps).to(x.dtype) * self.weight


class QuotientNorm(PowerNorm):
    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide / torch.sqrt(torch.square(wide).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


# Positions: halves of a head, or pairs of neighbours -----------------------------------------------


def angles(length: int) -> tuple[Tensor, Tensor]:
    table = torch.outer(torch.arange(length).float(), 1 / 10000 ** (torch.arange(0, HEAD, 2).float() / HEAD))
    return table.cos(), table.sin()


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return x * torch.cat([cos, cos], -1) + torch.cat((-right, left), -1) * torch.cat([sin, sin], -1)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


def rotate_unbound(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(3).type_as(x)


# Attention -----------------------------------------------------------------------------------------


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def with_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scale = 1.0 / math.sqrt(HEAD)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, scale=scale, is_causal=True)


def with_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=HEAD**-0.5)


def scaled_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q * HEAD**-0.5, k, v, is_causal=True, scale=1.0)


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = torch.full((q.shape[2], q.shape[2]), float("-inf"), dtype=q.dtype).triu(1)
    return (q @ k.transpose(2, 3) * HEAD**-0.5 + hidden).softmax(-1, dtype=torch.float32).to(v.dtype) @ v


def half_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A fault: another scale."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)


def without_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A fault: later words are seen."""
    return F.scaled_dot_product_attention(q, k, v)


class Attention(nn.Module):
    def __init__(self, rotate: Callable[..., Tensor], attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.rotate, self.attend = rotate, attend

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = [part(x).view(batch, length, HEADS, HEAD).transpose(1, 2) for part in (self.q, self.k, self.v)]
        cos, sin = (table.to(x.dtype) for table in angles(length))
        q, k = (self.rotate(part, cos, sin).to(heads[2].dtype) for part in heads[:2])
        return self.o(self.attend(q, k, heads[2]).transpose(1, 2).reshape(batch, length, D))


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def gated_by_sigmoid(gate: Tensor, up: Tensor) -> Tensor:
    return up * (gate * torch.sigmoid(gate))


def gated_by_gelu(gate: Tensor, up: Tensor) -> Tensor:
    """A fault: another activation."""
    return up * F.gelu(gate)


class Mlp(nn.Module):
    def __init__(self, gate: Callable[..., Tensor]) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(D, INNER), nn.Linear(D, INNER), nn.Linear(INNER, D)
        self.gating = gate

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.gating(self.gate(x), self.up(x)))


# The two models ------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, norm, rotate, attend, gate) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.input_norm, self.post_norm = norm(), norm()
        self.self_attn, self.mlp = Attention(rotate, attend), Mlp(gate)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Decoder(nn.Module):
    def __init__(self, norm=PowerNorm, rotate=rotate_halves, attend=fused, gate=gated) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, D)
        self.layers = nn.ModuleList([Block(norm, rotate, attend, gate) for _ in range(2)])
        self.norm, self.lm_head = norm(), nn.Linear(D, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class PortedBlock(nn.Module):
    def __init__(self, norm, rotate, attend, gate) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.norm_1, self.attn, self.drop_1 = norm(), Attention(rotate, attend), nn.Identity()
        self.norm_2, self.ffn, self.drop_2 = norm(), Mlp(gate), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop_1(self.attn(self.norm_1(x))) + x
        return self.drop_2(self.ffn(self.norm_2(x))) + x


class PortedDecoder(nn.Module):
    def __init__(self, norm=ProductNorm, rotate=rotate_halves, attend=with_scale, gate=gated_by_sigmoid) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.wte = nn.Embedding(WORDS, D)
        self.h = nn.ModuleList([PortedBlock(norm, rotate, attend, gate) for _ in range(2)])
        self.ln_f, self.head = norm(), nn.Linear(D, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens)
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


_NAMES = {
    "embed_tokens": "wte", "layers": "h", "input_norm": "norm_1", "post_norm": "norm_2", "self_attn": "attn",
    "mlp": "ffn", "norm": "ln_f", "lm_head": "head",
}  # fmt: skip


def decoder(**parts: Callable[..., Tensor]) -> Decoder:
    """The reference, with weights that matter."""
    torch.manual_seed(1)
    model = Decoder(**parts)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.5 / D**0.5 if weight.dim() > 1 else 0.1))
    return model.eval()


def ported(model: Decoder, **parts: Callable[..., Tensor]) -> PortedDecoder:
    """A port with the weights of a reference; for rotated pairs, the rows of a head are interleaved."""
    port = PortedDecoder(**parts)
    interleaved = port.h[0].attn.rotate is not rotate_halves
    state = {}
    for name, weight in model.state_dict().items():
        if interleaved and (".q." in name or ".k." in name):
            weight = weight.view(HEADS, 2, HEAD // 2, D).transpose(1, 2).reshape(D, D)
        state[".".join(_NAMES.get(word, word) for word in name.split("."))] = weight
    port.load_state_dict(state)
    return port.eval()
