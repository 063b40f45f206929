"""BERT and GPT-2 written again: other names, q/k/v fused or apart, attention by hand, norms as functions.

The steps of a body that faults replace are methods of their own: ``plant`` in ``case`` exchanges one on one module.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["TinyBert", "TinyGpt", "bert", "gpt2"]


# BERT ----------------------------------------------------------------------------------------------


class FusedAttention(nn.Module):
    """Bidirectional attention with one projection for queries, keys and values, in this order."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values of shape (batch, heads, tokens, size)."""
        batch, tokens, _ = x.shape
        stacked = self.qkv(x).reshape(batch, tokens, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        return stacked[0], stacked[1], stacked[2]

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.matmul(q, k.transpose(-1, -2)) / self.size**0.5

    def masked(self, scores: Tensor, keep: Tensor) -> Tensor:
        return scores.masked_fill(~keep[:, None, None, :], float("-inf"))

    def merge(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 1, 3).flatten(2)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        q, k, v = self.split(x)
        weights = torch.softmax(self.masked(self.scores(q, k), keep), dim=-1)
        return self.out(self.merge(torch.matmul(weights, v)))


class PostNormBlock(nn.Module):
    """Attention and a two-layer network, each followed by residual and norm."""

    def __init__(self, width: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.mixer = FusedAttention(width, heads)
        self.mixer_norm = nn.LayerNorm(width, eps=eps)
        self.network = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.network_norm = nn.LayerNorm(width, eps=eps)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = self.mixer_norm(x + self.mixer(x, keep))
        return self.network_norm(x + self.network(x))


class Words(nn.Module):
    """Token, position and segment embeddings, one after the other, without modules for the two small ones."""

    def __init__(self, vocabulary: int, positions: int, width: int, eps: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(positions, width))
        self.segments = nn.Parameter(torch.zeros(2, width))
        self.norm = nn.LayerNorm(width, eps=eps)

    def place(self, tokens: int) -> Tensor:
        return self.places[:tokens]

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        return self.norm(self.tokens(ids) + self.place(ids.shape[1]) + F.embedding(segments, self.segments))


class TinyBert(nn.Module):
    """``transformers.BertModel`` with its pooler, returning a tuple."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.words = Words(config.vocab_size, config.max_position_embeddings, width, eps)
        self.trunk = nn.ModuleDict(
            {
                f"block_{i}": PostNormBlock(width, config.num_attention_heads, config.intermediate_size, eps)
                for i in range(config.num_hidden_layers)
            }
        )
        self.first = nn.Linear(width, width)

    def keep(self, mask: Tensor) -> Tensor:
        return mask.bool()

    def pool(self, x: Tensor) -> Tensor:
        return torch.tanh(self.first(x[:, 0]))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(input_ids, token_type_ids)
        keep = self.keep(attention_mask)
        for block in self.trunk.values():
            x = block(x, keep)
        return x, self.pool(x)


def bert(source: Any) -> TinyBert:
    """The port of a ``BertModel``, with its weights."""
    model = TinyBert(source.config)
    with torch.no_grad():
        embeddings = source.embeddings
        model.words.tokens.weight.copy_(embeddings.word_embeddings.weight)
        model.words.places.copy_(embeddings.position_embeddings.weight)
        model.words.segments.copy_(embeddings.token_type_embeddings.weight)
        _same(model.words.norm, embeddings.LayerNorm)
        for block, layer in zip(model.trunk.values(), source.encoder.layer):
            own = layer.attention.self
            for part in ("weight", "bias"):
                stacked = torch.cat([getattr(linear, part) for linear in (own.query, own.key, own.value)])
                getattr(block.mixer.qkv, part).copy_(stacked)
            _same(block.mixer.out, layer.attention.output.dense)
            _same(block.mixer_norm, layer.attention.output.LayerNorm)
            _same(block.network[0], layer.intermediate.dense)
            _same(block.network[2], layer.output.dense)
            _same(block.network_norm, layer.output.LayerNorm)
        _same(model.first, source.pooler.dense)
    return model.eval()


# GPT-2 ---------------------------------------------------------------------------------------------


class CausalAttention(nn.Module):
    """Attention to what came before, with Linear instead of Conv1D and values projected before queries and keys."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_v, self.to_k, self.to_q = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.mix = nn.Linear(width, width)
        self.register_buffer("past", torch.ones(context, context, dtype=torch.bool).tril(), persistent=False)

    def apart(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        return x.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

    def allowed(self, tokens: int, keep: Tensor) -> Tensor:
        return self.past[:tokens, :tokens] & keep[:, None, None, :]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, dim=-1) @ v

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        v, k, q = self.apart(self.to_v(x)), self.apart(self.to_k(x)), self.apart(self.to_q(x))
        mixed = self.attend(q, k, v, self.allowed(x.shape[1], keep))
        return self.mix(mixed.transpose(1, 2).reshape(x.shape))


class Gain(nn.Module):
    """The weights of a norm; the norm itself is written out where it is used."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))


class PreNormBlock(nn.Module):
    """GPT-2's block: norms as functions, the two-layer network inline."""

    def __init__(self, width: int, heads: int, context: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.before, self.between = Gain(width), Gain(width)
        self.attention = CausalAttention(width, heads, context)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def normed(self, x: Tensor, gain: Gain) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + self.eps) * gain.scale + gain.shift

    def feed(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = x + self.attention(self.normed(x, self.before), keep)
        return x + self.feed(self.normed(x, self.between))


class Body(nn.Module):
    """Embeddings and blocks: a wrapper more than GPT2LMHeadModel needs."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.n_embd
        self.token, self.place = nn.Embedding(config.vocab_size, width), nn.Embedding(config.n_positions, width)
        eps = config.layer_norm_epsilon
        self.blocks = nn.Sequential(
            *(PreNormBlock(width, config.n_head, config.n_positions, eps) for _ in range(config.n_layer))
        )
        self.last = nn.LayerNorm(width, eps=eps)

    def places(self, ids: Tensor) -> Tensor:
        return torch.arange(ids.shape[1])

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        x = self.token(ids) + self.place(self.places(ids))
        for block in self.blocks:
            x = block(x, keep)
        return self.last(x)


class TinyGpt(nn.Module):
    """``transformers.GPT2LMHeadModel`` with the tied head as a function."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.body = Body(config)

    def head(self, x: Tensor) -> Tensor:
        return F.linear(x, self.body.token.weight)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.body(input_ids, attention_mask.bool()))


def gpt2(source: Any) -> TinyGpt:
    """The port of a ``GPT2LMHeadModel``, with its weights."""
    model, old = TinyGpt(source.config), source.transformer
    with torch.no_grad():
        model.body.token.weight.copy_(old.wte.weight)
        model.body.place.weight.copy_(old.wpe.weight)
        _same(model.body.last, old.ln_f)
        for block, layer in zip(model.body.blocks, old.h):
            own = block.attention
            for third, linear in enumerate((own.to_q, own.to_k, own.to_v)):
                linear.weight.copy_(layer.attn.c_attn.weight.chunk(3, dim=1)[third].T)
                linear.bias.copy_(layer.attn.c_attn.bias.chunk(3)[third])
            for linear, conv in (
                (own.mix, layer.attn.c_proj),
                (block.up, layer.mlp.c_fc),
                (block.down, layer.mlp.c_proj),
            ):
                linear.weight.copy_(conv.weight.T)
                linear.bias.copy_(conv.bias)
            for gain, norm in ((block.before, layer.ln_1), (block.between, layer.ln_2)):
                gain.scale.copy_(norm.weight)
                gain.shift.copy_(norm.bias)
    return model.eval()


def _same(to: Any, source: Any) -> None:
    to.weight.copy_(source.weight)
    if source.bias is not None:
        to.bias.copy_(source.bias)
