"""Faults planted in copies of transformers' T5, ViT and Whisper."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.whisper.modeling_whisper import WhisperAttention

from .case import Pair, fault, plant
from .originals import inputs_of, original, reference


def _of(name: str, attention: str = "sdpa") -> tuple[Any, Any, dict[str, Any]]:
    return reference(name, attention), original(name, attention), inputs_of(name)


# T5 ------------------------------------------------------------------------------------------------


@fault("t5/relative-position-buckets", "encoder.block.0.layer.0.SelfAttention", "div truediv", "constant")
def _() -> Pair:
    a, b, inputs = _of("t5")
    b.encoder.block[0].layer[0].SelfAttention.relative_attention_max_distance = 128
    return Pair(a, b, inputs)


# Other branches run: the first steps of either way of counting.
@fault(
    "t5/buckets-for-both-directions-in-the-decoder",
    "decoder.block.0.layer.0.SelfAttention",
    "gt to mul abs zeros_like min neg add iadd",
)
def _() -> Pair:
    a, b, inputs = _of("t5")
    b.decoder.block[0].layer[0].SelfAttention.is_decoder = False
    return Pair(a, b, inputs)


@fault("t5/scores-scaled", "decoder.block.1.layer.1.EncDecAttention", "scaled_dot_product_attention", "constant")
def _() -> Pair:
    a, b, inputs = _of("t5")
    b.decoder.block[1].layer[1].EncDecAttention.scaling = 8**-0.5
    return Pair(a, b, inputs)


@fault("t5/scores-scaled-by-hand", "decoder.block.1.layer.1.EncDecAttention", "mul", "constant")
def _() -> Pair:
    a, b, inputs = _of("t5", "eager")
    b.decoder.block[1].layer[1].EncDecAttention.scaling = 8**-0.5
    return Pair(a, b, inputs)


def centred(self: Any, hidden_states: Tensor) -> Tensor:
    hidden_states = hidden_states - hidden_states.mean(-1, keepdim=True)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * (hidden_states * torch.rsqrt(variance + self.variance_epsilon))


@fault("t5/norm-subtracts-the-mean", "encoder.block.1.layer.1.layer_norm", "mean sub", "extra wiring values")
def _() -> Pair:
    a, b, inputs = _of("t5")
    plant(b.encoder.block[1].layer[1].layer_norm, forward=centred)
    return Pair(a, b, inputs)


def sees_padding_only(self: Any, hidden_states: Tensor, mask: Any = None, **options: Any) -> Any:
    return T5Attention.forward(self, hidden_states, mask=~mask, **options)


@fault(
    "t5/inverted-mask",
    "encoder.block.1.layer.0.SelfAttention",
    "invert bitwise_not where scaled_dot_product_attention",
    "extra wiring values",
)
def _() -> Pair:
    a, b, inputs = _of("t5")
    plant(b.encoder.block[1].layer[0].SelfAttention, forward=sees_padding_only)
    return Pair(a, b, inputs)


@fault("t5/gelu-for-relu", "encoder.block.0.layer.1.DenseReluDense.act", "gelu relu")
def _() -> Pair:
    a, b, inputs = _of("t5")
    b.encoder.block[0].layer[1].DenseReluDense.act = GELUActivation()
    return Pair(a, b, inputs)


# The product is in one of the two only: it, or the head that gets another input.
@fault("t5/head-without-its-scale", ".", "mul Linear", "missing extra wiring")
def _() -> Pair:
    a, b, inputs = _of("t5")
    assert a.config.scale_decoder_outputs
    b.config.scale_decoder_outputs = False
    return Pair(a, b, inputs)


# ViT -----------------------------------------------------------------------------------------------


def token_last(self: Any, pixel_values: Tensor, **options: Any) -> Tensor:
    patches = self.patch_embeddings(pixel_values)
    tokens = torch.cat((patches, self.cls_token.expand(len(patches), -1, -1)), dim=1)
    return self.dropout(tokens + self.position_embeddings)


@fault("vit/class-token-last", "embeddings", "cat", "wiring values")
def _() -> Pair:
    a, b, inputs = _of("vit")
    plant(b.embeddings, forward=token_last)
    return Pair(a, b, inputs)


def column_by_column(self: Any, pixel_values: Tensor) -> Tensor:
    return self.projection(pixel_values).transpose(2, 3).flatten(2).transpose(1, 2)


@fault(
    "vit/patches-column-by-column", "embeddings.patch_embeddings", "transpose flatten", "extra wiring values constant"
)
def _() -> Pair:
    a, b, inputs = _of("vit")
    plant(b.embeddings.patch_embeddings, forward=column_by_column)
    return Pair(a, b, inputs)


@fault("vit/positions-rolled", "embeddings", "add get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = _of("vit")
    b.embeddings.position_embeddings = nn.Parameter(b.embeddings.position_embeddings.detach().roll(1, dims=1))
    return Pair(a, b, inputs)


@fault("vit/norm-without-bias", "layers.1.layernorm_before", "layer_norm get_attr", "weights wiring missing constant")
def _() -> Pair:
    a, b, inputs = _of("vit")
    b.layers[1].layernorm_before.bias = None
    return Pair(a, b, inputs)


def pools_the_last(self: Any, hidden_states: Tensor) -> Tensor:
    return self.activation(self.dense(hidden_states[:, -1]))


@fault("vit/pooled-at-the-last-token", "pooler", "getitem", "constant values")
def _() -> Pair:
    a, b, inputs = _of("vit")
    plant(b.pooler, forward=pools_the_last)
    return Pair(a, b, inputs)


def adds_to_itself(self: Any, hidden_states: Tensor, attention_mask: Any = None, **options: Any) -> Tensor:
    residual = self.layernorm_before(hidden_states)
    hidden_states = self.dropout(self.attention(residual, attention_mask)[0]) + residual
    return hidden_states + self.dropout(self.mlp(self.layernorm_after(hidden_states)))


@fault("vit/residual-taken-after-the-norm", "layers.0", "add", "wiring values")
def _() -> Pair:
    a, b, inputs = _of("vit")
    plant(b.layers[0], forward=adds_to_itself)
    return Pair(a, b, inputs)


@fault(
    "vit/attention-in-half-as-many-heads",
    "layers.2.attention",
    "view scaled_dot_product_attention",
    "constant shape values",
)
def _() -> Pair:
    a, b, inputs = _of("vit")
    b.layers[2].attention.head_dim = 16  # the scale stays: it was computed when the module was made
    return Pair(a, b, inputs)


# Whisper -------------------------------------------------------------------------------------------


@fault("whisper/stride-in-the-first-convolution", "model.encoder.conv1", "conv1d", "constant shape")
def _() -> Pair:
    a, b, inputs = _of("whisper")
    b.model.encoder.conv1.stride, b.model.encoder.conv2.stride = (2,), (1,)
    return Pair(a, b, inputs)


@fault("whisper/dilated-convolution", "model.encoder.conv2", "conv1d", "constant")
def _() -> Pair:
    a, b, inputs = _of("whisper")
    b.model.encoder.conv2.dilation, b.model.encoder.conv2.padding = (2,), (2,)
    return Pair(a, b, inputs)


def from_place_one(self: Any, input_ids: Tensor, position_ids: Any = None, **options: Any) -> Tensor:
    return self.weight[position_ids + 1]


@fault("whisper/position-off-by-one", "model.decoder.embed_positions", "add getitem", "extra wiring values")
def _() -> Pair:
    a, b, inputs = _of("whisper")
    plant(b.model.decoder.embed_positions, forward=from_place_one)
    return Pair(a, b, inputs)


@fault("whisper/query-scaled-twice", "model.encoder.layers.1.self_attn", "mul", "constant")
def _() -> Pair:
    a, b, inputs = _of("whisper", "eager")
    b.model.encoder.layers[1].self_attn.scaling = 8**-1.0
    return Pair(a, b, inputs)


def looks_at_itself(self: Any, hidden_states: Tensor, key_value_states: Any = None, **options: Any) -> Any:
    options.pop("past_key_values", None)
    return WhisperAttention.forward(self, hidden_states, key_value_states=hidden_states, **options)


# The keys' projection is the first to get the wrong sequence; it is the body that hands it over.
@fault("whisper/cross-attention-to-itself", "model.decoder.layers.0.encoder_attn", "Linear", "wiring values shape")
def _() -> Pair:
    a, b, inputs = _of("whisper")
    plant(b.model.decoder.layers[0].encoder_attn, forward=looks_at_itself)
    return Pair(a, b, {**inputs, "use_cache": False})


@fault("whisper/zeroed-bias", "model.decoder.layers.1.fc1", "linear get_attr", "weights")
def _() -> Pair:
    a, b, inputs = _of("whisper")
    nn.init.zeros_(b.model.decoder.layers[1].fc1.bias)
    return Pair(a, b, inputs)
