"""Decoders of further families written again: projections fused or apart, einsum, norms as functions, no masks made.

The steps that faults replace are methods of their own: ``plant`` in ``case`` exchanges one on one module.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["TinyBloom", "TinyDistil", "TinyGemma", "TinyNeox", "bloom", "distilbert", "gemma2", "neox"]


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


def _angles(tokens: int, size: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines of half the size: the two halves turn alike."""
    speeds = torch.exp(torch.arange(0, size, 2).float() * (-torch.log(torch.tensor(base)) / size))
    angles = torch.outer(torch.arange(tokens).float(), speeds)
    return angles.cos(), angles.sin()


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The last dimension rotated, in halves; tokens are the second dimension."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


# Gemma 2 -------------------------------------------------------------------------------------------


class Gemma2Block(nn.Module):
    """Grouped attention as einsum, four norms, a gated network of one fused projection."""

    def __init__(self, width: int, inner: int, size: int, window: int | None) -> None:
        super().__init__()
        self.size, self.window, self.cap, self.scale, self.eps = size, window, 3.0, 16**-0.5, 1e-6
        self.heads, self.groups = 4, 2
        self.wq, self.wkv = _parameter(4, size, width), _parameter(2, 2, size, width)
        self.wo = _parameter(4, size, width)
        self.norms = nn.ParameterList([_parameter(width) for _ in range(4)])
        self.gate_up, self.down = _parameter(2 * inner, width), nn.Linear(inner, width, bias=False)

    def norm(self, x: Tensor, which: int) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], 1 + self.norms[which], self.eps)

    def repeated(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // self.groups, dim=2)

    def capped(self, scores: Tensor) -> Tensor:
        return self.cap * torch.tanh(scores / self.cap)

    def hidden(self, keep: Tensor) -> Tensor:
        places = torch.arange(keep.shape[1])
        gap = places[:, None] - places[None]
        seen = gap >= 0 if self.window is None else (gap >= 0) & (gap < self.window)
        return ~(seen[None] & keep[:, None].bool())

    def attend(self, x: Tensor, keep: Tensor) -> Tensor:
        cos, sin = _angles(x.shape[1], self.size)
        q = torch.einsum("btw,hsw->bths", x, self.wq)
        k, v = torch.einsum("btw,cgsw->cbtgs", x, self.wkv)
        q, k = _turned(q, cos, sin), self.repeated(_turned(k, cos, sin))
        scores = self.capped(torch.einsum("bqhs,bkhs->bhqk", q, k) * self.scale)
        scores = scores.masked_fill(self.hidden(keep)[:, None], -1e30)
        mixed = torch.einsum("bhqk,bkhs->bqhs", scores.softmax(-1), self.repeated(v))
        return torch.einsum("bqhs,hsw->bqw", mixed, self.wo)

    def network(self, x: Tensor) -> Tensor:
        gate, up = F.linear(x, self.gate_up).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = x + self.norm(self.attend(self.norm(x, 0), keep), 1)
        return x + self.norm(self.network(self.norm(x, 2)), 3)


class TinyGemma(nn.Module):
    """``Gemma2ForCausalLM``, its head tied to its embeddings."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.table = _parameter(config.vocab_size, config.hidden_size)
        windows = [4 if kind == "sliding_attention" else None for kind in config.layer_types]
        self.body = nn.Sequential(*[Gemma2Block(config.hidden_size, config.intermediate_size, 8, w) for w in windows])
        self.last = _parameter(config.hidden_size)

    def looked_up(self, ids: Tensor) -> Tensor:
        return self.table[ids] * self.table.shape[1] ** 0.5

    def head(self, x: Tensor) -> Tensor:
        return 10.0 * torch.tanh(x @ self.table.T / 10.0)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        x = self.looked_up(input_ids)
        for block in self.body:
            x = block(x, attention_mask)
        return (self.head(F.rms_norm(x, x.shape[-1:], 1 + self.last, 1e-6)),)


def gemma2(source: Any) -> TinyGemma:
    """The port of a ``Gemma2ForCausalLM``, with its weights."""
    model = TinyGemma(source.config)
    with torch.no_grad():
        model.table.copy_(source.model.embed_tokens.weight)
        model.last.copy_(source.model.norm.weight)
        for block, layer in zip(model.body, source.model.layers):
            own = layer.self_attn
            block.wq.copy_(own.q_proj.weight.view_as(block.wq))
            block.wkv.copy_(torch.stack([own.k_proj.weight, own.v_proj.weight]).view_as(block.wkv))
            block.wo.copy_(own.o_proj.weight.T.reshape(block.wo.shape))
            norms = (layer.input_layernorm, layer.post_attention_layernorm)
            norms += (layer.pre_feedforward_layernorm, layer.post_feedforward_layernorm)
            for mine, norm in zip(block.norms, norms):
                mine.copy_(norm.weight)
            block.gate_up.copy_(torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]))
            block.down.weight.copy_(layer.mlp.down_proj.weight)
    return model.eval()


# GPT-NeoX ------------------------------------------------------------------------------------------


class NeoxBlock(nn.Module):
    """Attention and network beside each other; queries, keys and values projected apart."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.ln_a, self.ln_m = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.fc_in, self.fc_out = nn.Linear(width, inner), nn.Linear(inner, width)

    def turn(self, x: Tensor) -> Tensor:
        part = self.size // 2
        cos, sin = _angles(x.shape[1], part)
        return torch.cat([_turned(x[..., :part], cos, sin), x[..., part:]], dim=-1)

    def attend(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (self.heads, self.size)) for each in (self.q, self.k, self.v))
        q, k, v = (each.transpose(1, 2) for each in (self.turn(q), self.turn(k), v))
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.o(x.transpose(1, 2).flatten(2))

    def network(self, x: Tensor) -> Tensor:
        return self.fc_out(F.gelu(self.fc_in(x)))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        return x + self.attend(self.ln_a(x), bias) + self.network(self.ln_m(x))


class TinyNeox(nn.Module):
    """``GPTNeoXForCausalLM`` with a mask of numbers."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, width)
        self.stack = nn.ModuleList([NeoxBlock(width, 4, config.intermediate_size) for _ in range(2)])
        self.ln = nn.LayerNorm(width)
        self.unembed = nn.Linear(width, config.vocab_size, bias=False)

    def bias(self, keep: Tensor) -> Tensor:
        causal = torch.full((keep.shape[1],) * 2, float("-inf")).triu(1)
        return causal + (1.0 - keep[:, None, None].float()) * -1e9

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        x = self.words(input_ids)
        bias = self.bias(attention_mask).to(x.dtype)
        for block in self.stack:
            x = block(x, bias)
        return (self.unembed(self.ln(x)),)


def neox(source: Any) -> TinyNeox:
    """The port of a ``GPTNeoXForCausalLM``, with its weights."""
    model = TinyNeox(source.config)
    inner = source.gpt_neox
    with torch.no_grad():
        for block, layer in zip(model.stack, inner.layers):
            _same(block.ln_a, layer.input_layernorm)
            _same(block.ln_m, layer.post_attention_layernorm)
            _same(block.o, layer.attention.dense)
            _same(block.fc_in, layer.mlp.dense_h_to_4h)
            _same(block.fc_out, layer.mlp.dense_4h_to_h)
            _apart((block.q, block.k, block.v), layer.attention.query_key_value, 4)
        _same(model.words, inner.embed_in)
        _same(model.ln, inner.final_layer_norm)
        model.unembed.weight.copy_(source.get_output_embeddings().weight)
    return model.eval()


def _same(mine: Any, other: Any) -> None:
    mine.load_state_dict(other.state_dict())


def _apart(linears: tuple[nn.Linear, ...], fused: nn.Linear, heads: int) -> None:
    """Queries, keys and values out of a projection that has all three of the first head, then of the second."""
    for part in ("weight", "bias"):
        whole = getattr(fused, part)
        pieces = whole.view(heads, 3, -1, *whole.shape[1:]).unbind(1)
        for linear, piece in zip(linears, pieces):
            getattr(linear, part).copy_(piece.reshape(getattr(linear, part).shape))


# BLOOM ---------------------------------------------------------------------------------------------


class BloomLayer(nn.Module):
    """Attention whose scores fall with distance; one projection, taken apart by unbind."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.pre, self.mid = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = nn.ModuleDict({"into": nn.Linear(width, 3 * width), "out": nn.Linear(width, width)})
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def taken_apart(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.mix["into"](x).view(*x.shape[:2], self.heads, 3, -1).unbind(3)

    def slopes(self) -> Tensor:
        return 0.25 ** torch.arange(1, self.heads + 1)

    def bias(self, keep: Tensor) -> Tensor:
        places = torch.arange(keep.shape[1])
        far = places[None] - places[:, None]
        seen = (far <= 0) & keep[:, None, None].bool()
        return torch.where(seen, self.slopes()[:, None, None] * far, torch.tensor(-1e9))

    def weights(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores, dim=-1)

    def attend(self, x: Tensor, keep: Tensor) -> Tensor:
        q, k, v = self.taken_apart(x)
        scores = torch.einsum("bqhs,bkhs->bhqk", q / q.shape[-1] ** 0.5, k) + self.bias(keep).to(x.dtype)
        return self.mix["out"](torch.einsum("bhqk,bkhs->bqhs", self.weights(scores), v).reshape(x.shape))

    def act(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = x + self.attend(self.pre(x), keep)
        return x + self.narrow(self.act(self.wide(self.mid(x))))


class TinyBloom(nn.Module):
    """``BloomForCausalLM`` with its norm behind the embeddings."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.lookup = nn.Sequential(nn.Embedding(config.vocab_size, width), nn.LayerNorm(width))
        self.levels = nn.ModuleList([BloomLayer(width, config.n_head) for _ in range(config.n_layer)])
        self.close = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        x = self.lookup(input_ids)
        for level in self.levels:
            x = level(x, attention_mask)
        return (F.linear(self.close(x), self.lookup[0].weight),)


def bloom(source: Any) -> TinyBloom:
    """The port of a ``BloomForCausalLM``, with its weights."""
    model, inner = TinyBloom(source.config), source.transformer
    _same(model.lookup[0], inner.word_embeddings)
    _same(model.lookup[1], inner.word_embeddings_layernorm)
    for level, layer in zip(model.levels, inner.h):
        _same(level.pre, layer.input_layernorm)
        _same(level.mid, layer.post_attention_layernorm)
        _same(level.mix["into"], layer.self_attention.query_key_value)
        _same(level.mix["out"], layer.self_attention.dense)
        _same(level.wide, layer.mlp.dense_h_to_4h)
        _same(level.narrow, layer.mlp.dense_4h_to_h)
    _same(model.close, inner.ln_f)
    return model.eval()


# DistilBERT ----------------------------------------------------------------------------------------


class TinyDistil(nn.Module):
    """``DistilBertModel`` without modules but its own: every weight a parameter in one flat list."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.heads, self.layers = source.config.n_heads, source.config.n_layers
        self.held = nn.ParameterDict({k.replace(".", "_"): v.detach().clone() for k, v in source.named_parameters()})

    def dense(self, x: Tensor, name: str) -> Tensor:
        return torch.matmul(x, self.held[f"{name}_weight"].t()) + self.held[f"{name}_bias"]

    def norm(self, x: Tensor, name: str, eps: float = 1e-12) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scale = centred.pow(2).mean(-1, keepdim=True).add(eps).sqrt()
        return centred / scale * self.held[f"{name}_weight"] + self.held[f"{name}_bias"]

    def embed(self, ids: Tensor) -> Tensor:
        words, places = (self.held[f"embeddings_{kind}_embeddings_weight"] for kind in ("word", "position"))
        return self.norm(words[ids] + places[: ids.shape[1]], "embeddings_LayerNorm")

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def attend(self, x: Tensor, keep: Tensor, at: str) -> Tensor:
        q, k, v = (self.split(self.dense(x, f"{at}_attention_{part}_lin")) for part in "qkv")
        scores = (q @ k.mT) * q.shape[-1] ** -0.5
        scores = scores + (1 - keep[:, None, None].to(x.dtype)) * torch.finfo(x.dtype).min
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        return self.dense(mixed, f"{at}_attention_out_lin")

    def layer(self, x: Tensor, keep: Tensor, at: str) -> Tensor:
        x = self.norm(x + self.attend(x, keep, at), f"{at}_sa_layer_norm")
        ahead = self.dense(F.gelu(self.dense(x, f"{at}_ffn_lin1")), f"{at}_ffn_lin2")
        return self.norm(x + ahead, f"{at}_output_layer_norm")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        x = self.embed(input_ids)
        for i in range(self.layers):
            x = self.layer(x, attention_mask, f"transformer_layer_{i}")
        return (x,)


def distilbert(source: Any) -> TinyDistil:
    """The port of a ``DistilBertModel``, with its weights."""
    return TinyDistil(source).eval()
