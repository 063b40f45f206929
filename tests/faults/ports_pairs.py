"""T5 and Whisper written again: encoder and decoder, attention and norms by hand, convolutions as functions.

The steps of a body that faults replace are methods of their own: ``plant`` in ``case`` exchanges one on one module.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["TinyT5", "TinyWhisper", "t5", "whisper"]


class Attend(nn.Module):
    """Attention to oneself or to another sequence, with the scores' scale and what is added to them given."""

    def __init__(self, width: int, heads: int, size: int, scale: float, bias: bool) -> None:
        super().__init__()
        self.heads, self.size, self.scale = heads, size, scale
        self.ask = nn.Linear(width, heads * size, bias=bias)
        self.hold = nn.Linear(width, 2 * heads * size, bias=bias)  # keys, then values
        self.give = nn.Linear(heads * size, width, bias=bias)

    def heads_of(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.size)).movedim(-2, 1)

    def weights(self, q: Tensor, k: Tensor, added: Tensor | None) -> Tensor:
        scores = torch.matmul(q * self.scale, k.mT)
        return (scores if added is None else scores + added).softmax(-1)

    def forward(self, x: Tensor, source: Tensor, added: Tensor | None = None) -> Tensor:
        keys, values = self.hold(source).chunk(2, dim=-1)
        weights = self.weights(self.heads_of(self.ask(x)), self.heads_of(keys), added)
        return self.give(torch.matmul(weights, self.heads_of(values)).movedim(1, -2).flatten(-2))


def hidden(tokens: int) -> Tensor:
    """Added to scores: nothing for what came before, next to minus infinity for what comes after."""
    return torch.full((tokens, tokens), torch.finfo(torch.float32).min).triu(1)


# T5 ------------------------------------------------------------------------------------------------


class Distances(nn.Module):
    """A learned number for each head and each bucket of distances between two tokens."""

    def __init__(self, buckets: int, furthest: int, heads: int, both: bool) -> None:
        super().__init__()
        self.buckets, self.furthest, self.both = buckets, furthest, both
        self.table = nn.Parameter(torch.zeros(buckets, heads))

    def bucket(self, distance: Tensor) -> Tensor:
        """``distance`` is the place of the key less the place of the query."""
        count = self.buckets // 2 if self.both else self.buckets
        start = (distance > 0).long() * count if self.both else torch.zeros_like(distance)
        length = distance.abs() if self.both else (-distance).clamp(min=0)
        exact = count // 2
        share = torch.log(length.clamp(min=1).float() / exact) / math.log(self.furthest / exact)
        far = (exact + (share * (count - exact)).long()).clamp(max=count - 1)
        return start + torch.where(length < exact, length, far)

    def forward(self, tokens: int) -> Tensor:
        places = torch.arange(tokens)
        return self.table[self.bucket(places - places[:, None])].permute(2, 0, 1)


class Tower(nn.Module):
    """T5's encoder or decoder; sublayers in one flat list, their norms in another."""

    def __init__(self, config: Any, decoder: bool) -> None:
        super().__init__()
        self.decoder, self.eps, width = decoder, config.layer_norm_epsilon, config.d_model
        self.distances = Distances(
            config.relative_attention_num_buckets,
            config.relative_attention_max_distance,
            config.num_heads,
            both=not decoder,
        )
        self.steps = nn.ModuleList()
        for _ in range(config.num_layers):
            for _ in range(2 if decoder else 1):
                self.steps.append(Attend(width, config.num_heads, config.d_kv, 1.0, bias=False))
            self.steps.append(
                nn.Sequential(
                    nn.Linear(width, config.d_ff, bias=False), nn.ReLU(), nn.Linear(config.d_ff, width, bias=False)
                )
            )
        self.gains = nn.ParameterList(torch.ones(width) for _ in range(len(self.steps) + 1))

    def normed(self, x: Tensor, gain: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], gain, self.eps)

    def added(self, mask: Tensor) -> Tensor:
        return (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min

    def near(self, tokens: int, mask: Tensor | None) -> Tensor:
        """What is added to the scores between the tower's own tokens."""
        return self.distances(tokens) + (hidden(tokens) if mask is None else self.added(mask))

    def forward(
        self, x: Tensor, mask: Tensor | None, memory: Tensor | None = None, far: Tensor | None = None
    ) -> Tensor:
        near = self.near(x.shape[1], mask)
        for i, (step, gain) in enumerate(zip(self.steps, self.gains)):
            normed = self.normed(x, gain)
            if not isinstance(step, Attend):
                x = x + step(normed)
            elif self.decoder and i % 3 == 1:
                x = x + step(normed, memory, far)
            else:
                x = x + step(normed, normed, near)
        return self.normed(x, self.gains[-1])


class TinyT5(nn.Module):
    """``T5ForConditionalGeneration``, whose head is the embedding, scaled or not as the configuration says."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.d_model)
        self.reader, self.writer = Tower(config, decoder=False), Tower(config, decoder=True)
        self.out = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0

    def logits(self, x: Tensor) -> Tensor:
        return self.out(x * self.scale)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        memory = self.reader(self.words(input_ids), attention_mask)
        return self.logits(self.writer(self.words(decoder_input_ids), None, memory, self.writer.added(attention_mask)))


def t5(source: Any) -> TinyT5:
    """The port of a ``T5ForConditionalGeneration``, with its weights."""
    model = TinyT5(source.config)
    with torch.no_grad():
        model.words.weight.copy_(source.shared.weight)
        model.out.weight.copy_(source.lm_head.weight)
        for tower, stack in ((model.reader, source.encoder), (model.writer, source.decoder)):
            own = stack.block[0].layer[0].SelfAttention
            tower.distances.table.copy_(own.relative_attention_bias.weight)
            layers = [layer for block in stack.block for layer in block.layer]
            for step, gain, layer in zip(tower.steps, tower.gains, layers):
                gain.copy_(layer.layer_norm.weight)
                if isinstance(step, Attend):
                    old = layer.SelfAttention if hasattr(layer, "SelfAttention") else layer.EncDecAttention
                    step.ask.weight.copy_(old.q.weight)
                    step.hold.weight.copy_(torch.cat([old.k.weight, old.v.weight]))
                    step.give.weight.copy_(old.o.weight)
                else:
                    step[0].weight.copy_(layer.DenseReluDense.wi.weight)
                    step[2].weight.copy_(layer.DenseReluDense.wo.weight)
            tower.gains[-1].copy_(stack.final_layer_norm.weight)
    return model.eval()


# Whisper -------------------------------------------------------------------------------------------


class Unit(nn.Module):
    """One layer of Whisper: attention to itself, in the decoder to the encoder, and a two-layer network."""

    def __init__(self, width: int, heads: int, inner: int, decoder: bool) -> None:
        super().__init__()
        size = width // heads
        self.own = Attend(width, heads, size, size**-0.5, bias=True)
        self.own_ln = nn.LayerNorm(width)
        if decoder:
            self.other, self.other_ln = Attend(width, heads, size, size**-0.5, bias=True), nn.LayerNorm(width)
        self.net = nn.ModuleDict(
            {"ln": nn.LayerNorm(width), "wide": nn.Linear(width, inner), "narrow": nn.Linear(inner, width)}
        )

    def network(self, x: Tensor) -> Tensor:
        return self.net["narrow"](F.gelu(self.net["wide"](self.net["ln"](x))))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        normed = self.own_ln(x)
        x = x + self.own(normed, normed, None if memory is None else hidden(x.shape[1]))
        if memory is not None:
            x = x + self.other(self.other_ln(x), memory)
        return x + self.network(x)


class Hearing(nn.Module):
    """Two convolutions as functions, positions, and the encoder's layers."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.d_model
        self.kernels = nn.ParameterList(
            [
                torch.zeros(width, config.num_mel_bins, 3),
                torch.zeros(width),
                torch.zeros(width, width, 3),
                torch.zeros(width),
            ]
        )
        self.times = nn.Parameter(torch.zeros(config.max_source_positions, width))
        self.units = nn.ModuleList(
            Unit(width, config.encoder_attention_heads, config.encoder_ffn_dim, decoder=False)
            for _ in range(config.encoder_layers)
        )
        self.ln = nn.LayerNorm(width)

    def heard(self, sound: Tensor) -> Tensor:
        first, first_bias, second, second_bias = self.kernels
        x = F.gelu(F.conv1d(sound, first, first_bias, padding=1))
        return F.gelu(F.conv1d(x, second, second_bias, stride=2, padding=1)).transpose(1, 2)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.heard(sound) + self.times
        for unit in self.units:
            x = unit(x)
        return self.ln(x)


class Speech(nn.Module):
    """The decoder and its tied head."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.d_model
        self.word = nn.Embedding(config.vocab_size, width)
        self.place = nn.Parameter(torch.zeros(config.max_target_positions, width))
        self.units = nn.ModuleList(
            Unit(width, config.decoder_attention_heads, config.decoder_ffn_dim, decoder=True)
            for _ in range(config.decoder_layers)
        )
        self.ln = nn.LayerNorm(width)

    def places(self, tokens: int) -> Tensor:
        return self.place[:tokens]

    def forward(self, ids: Tensor, memory: Tensor) -> Tensor:
        x = self.word(ids) + self.places(ids.shape[1])
        for unit in self.units:
            x = unit(x, memory)
        return self.ln(x) @ self.word.weight.T


class TinyWhisper(nn.Module):
    """``WhisperForConditionalGeneration`` without cache."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.ear, self.mouth = Hearing(config), Speech(config)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        return self.mouth(decoder_input_ids, self.ear(input_features))


def whisper(source: Any) -> TinyWhisper:
    """The port of a ``WhisperForConditionalGeneration``, with its weights."""
    model, encoder, decoder = TinyWhisper(source.config), source.model.encoder, source.model.decoder
    with torch.no_grad():
        convolutions = (encoder.conv1.weight, encoder.conv1.bias, encoder.conv2.weight, encoder.conv2.bias)
        for kernel, old in zip(model.ear.kernels, convolutions):
            kernel.copy_(old)
        model.ear.times.copy_(encoder.embed_positions.weight)
        model.mouth.word.weight.copy_(decoder.embed_tokens.weight)
        model.mouth.place.copy_(decoder.embed_positions.weight)
        for part, stack in ((model.ear, encoder), (model.mouth, decoder)):
            _same(part.ln, stack.layer_norm)
            for unit, layer in zip(part.units, stack.layers):
                _attention(unit.own, layer.self_attn)
                _same(unit.own_ln, layer.self_attn_layer_norm)
                if hasattr(layer, "encoder_attn"):
                    _attention(unit.other, layer.encoder_attn)
                    _same(unit.other_ln, layer.encoder_attn_layer_norm)
                _same(unit.net["ln"], layer.final_layer_norm)
                _same(unit.net["wide"], layer.fc1)
                _same(unit.net["narrow"], layer.fc2)
    return model.eval()


def _attention(to: Attend, source: Any) -> None:
    _same(to.ask, source.q_proj)
    to.hold.weight.copy_(torch.cat([source.k_proj.weight, source.v_proj.weight]))
    to.hold.bias.copy_(torch.cat([torch.zeros_like(source.v_proj.bias), source.v_proj.bias]))  # keys have none
    _same(to.give, source.out_proj)


def _same(to: Any, source: Any) -> None:
    to.weight.copy_(source.weight)
    to.bias.copy_(source.bias)
