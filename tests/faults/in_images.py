"""Faults planted in copies of convolutional, windowed and recurrent models."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Pair, fault, plant
from .families import twins

# ConvNeXt ------------------------------------------------------------------------------------------


@fault("convnext/layer-scale-dropped", "encoder.stages.1.layers.0", "mul", "missing wiring")
def _() -> Pair:
    a, b, inputs = twins("convnext")
    b.encoder.stages[1].layers[0].layer_scale_parameter = None
    return Pair(a, b, inputs)


def circular(self: Any, x: Tensor) -> Tensor:
    return F.conv2d(F.pad(x, (3, 3, 3, 3), mode="circular"), self.weight, self.bias, groups=self.groups)


@fault("convnext/padded-in-a-circle", "encoder.stages.0.layers.0.dwconv", "pad conv2d", "constant values extra wiring")
def _() -> Pair:
    a, b, inputs = twins("convnext")
    plant(b.encoder.stages[0].layers[0].dwconv, forward=circular)
    return Pair(a, b, inputs)


@fault("convnext/epsilon", "encoder.stages.1.layers.1.layernorm", "layer_norm", "constant")
def _() -> Pair:
    a, b, inputs = twins("convnext")
    b.encoder.stages[1].layers[1].layernorm.eps = 1e-2
    return Pair(a, b, inputs)


@fault("convnext/kernel-flipped", "encoder.stages.1.layers.0.dwconv", "conv2d", "weights values")
def _() -> Pair:
    a, b, inputs = twins("convnext")
    conv = b.encoder.stages[1].layers[0].dwconv
    conv.weight.data = conv.weight.data.flip(-1).contiguous()
    return Pair(a, b, inputs)


@fault("convnext/norm-over-rows", "encoder.stages.1.layers.0", "permute", "constant values")
def _() -> Pair:
    a, b, inputs = twins("convnext")

    def turned(self: Any, features: Tensor) -> Tensor:
        x = self.dwconv(features).permute(0, 3, 2, 1)  # rows and columns exchanged
        x = self.pwconv2(self.act(self.pwconv1(self.layernorm(x))))
        return features + (self.layer_scale_parameter * x).permute(0, 3, 1, 2)

    plant(b.encoder.stages[1].layers[0], forward=turned)
    return Pair(a, b, inputs)


# ResNet --------------------------------------------------------------------------------------------

BLOCK = "encoder.stages.1.layers"


@fault("resnet/norm-epsilon", f"{BLOCK}.0.layer.1.normalization", "batch_norm", "constant")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    b.encoder.stages[1].layers[0].layer[1].normalization.eps = 1e-2
    return Pair(a, b, inputs)


@fault("resnet/norm-in-training", f"{BLOCK}.1.layer.0.normalization", "batch_norm", "constant values")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    b.encoder.stages[1].layers[1].layer[0].normalization.train()
    return Pair(a, b, inputs)


@fault("resnet/mean-for-max", "embedder.pooler", "avg_pool2d max_pool2d", "values")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    b.embedder.pooler = nn.AvgPool2d(3, 2, 1)
    return Pair(a, b, inputs)


@fault("resnet/pool-without-padding", "embedder.pooler", "max_pool2d", "constant shape")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    b.embedder.pooler = nn.MaxPool2d(2, 2, 0)
    return Pair(a, b, inputs)


@fault("resnet/stride-in-the-first", f"{BLOCK}.0.layer.0.convolution", "conv2d", "constant shape")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    one, two, _ = b.encoder.stages[1].layers[0].layer
    one.convolution.stride, two.convolution.stride = (2, 2), (1, 1)
    return Pair(a, b, inputs)


def relu_first(self: Any, hidden_state: Tensor) -> Tensor:
    return self.activation(self.layer(hidden_state)) + self.shortcut(hidden_state)


# The activation is handed the branch alone, and the sum comes after it.
@fault("resnet/activation-before-the-sum", f"{BLOCK}.1", "ReLU add iadd", "wiring missing extra")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    plant(b.encoder.stages[1].layers[1], forward=relu_first)
    return Pair(a, b, inputs)


@fault("resnet/one-variance", f"{BLOCK}.1.layer.2.normalization", "batch_norm", "weights")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    b.encoder.stages[1].layers[1].layer[2].normalization.running_var[3] *= 1.5
    return Pair(a, b, inputs)


@fault("resnet/shortcut-left-out", f"{BLOCK}.1", "add iadd", "wiring missing")
def _() -> Pair:
    a, b, inputs = twins("resnet")
    plant(b.encoder.stages[1].layers[1], forward=lambda self, hidden_state: self.activation(self.layer(hidden_state)))
    return Pair(a, b, inputs)


# Swin ----------------------------------------------------------------------------------------------


def one_way(self: Any, hidden_states: Tensor, reverse: bool = False) -> Tensor:
    return hidden_states if reverse else torch.roll(hidden_states, shifts=(-1, -1), dims=(1, 2))


@fault("swin/not-shifted-back", "encoder.layers.0.blocks.1", "roll view add", "missing wiring constant")
def _() -> Pair:
    a, b, inputs = twins("swin")
    plant(b.encoder.layers[0].blocks[1], cyclic_shift=one_way)
    return Pair(a, b, inputs)


@fault("swin/shifted-by-another-number", "encoder.layers.0.blocks.1", "roll", "constant")
def _() -> Pair:
    a, b, inputs = twins("swin")

    def other_way(self: Any, hidden_states: Tensor, reverse: bool = False) -> Tensor:
        shift = -self.shift_size if reverse else self.shift_size
        return torch.roll(hidden_states, shifts=(shift, -shift), dims=(1, 2))

    plant(b.encoder.layers[0].blocks[1], cyclic_shift=other_way)
    return Pair(a, b, inputs)


@fault(
    "swin/no-mask-between-windows",
    "encoder.layers.0.blocks.1 encoder.layers.0.blocks.1.attention",
    "add SwinAttention masked_fill sub",
)
def _() -> Pair:
    a, b, inputs = twins("swin")
    plant(b.encoder.layers[0].blocks[1], get_attn_mask=lambda self, *args, **kwargs: None)
    return Pair(a, b, inputs)


@fault("swin/patches-joined-in-another-order", "encoder.layers.0.downsample", "getitem cat", "wiring constant values")
def _() -> Pair:
    a, b, inputs = twins("swin")

    def rows_first(self: Any, x: Tensor, size: tuple[int, int]) -> Tensor:
        x = self.maybe_pad(x.view(x.shape[0], *size, x.shape[-1]), *size)
        x = torch.cat([x[:, row::2, column::2, :] for row in range(2) for column in range(2)], dim=-1)
        return self.reduction(self.norm(x.view(x.shape[0], -1, x.shape[-1])))

    plant(b.encoder.layers[0].downsample, forward=rows_first)
    return Pair(a, b, inputs)


@fault(
    "swin/relative-positions-transposed",
    "encoder.layers.1.blocks.0.attention.relative_position_bias",
    "get_attr getitem",
    "weights values",
)
def _() -> Pair:
    a, b, inputs = twins("swin")
    bias = b.encoder.layers[1].blocks[0].attention.relative_position_bias
    bias.relative_position_index = bias.relative_position_index.view(4, 4).t().reshape(-1)
    return Pair(a, b, inputs)


# CLIP ----------------------------------------------------------------------------------------------


@fault(
    "clip/gelu-for-quick-gelu",
    "vision_model.encoder.layers.1.mlp.activation_fn",
    "gelu mul sigmoid",
    "values missing extra",
)
def _() -> Pair:
    a, b, inputs = twins("clip")
    b.vision_model.encoder.layers[1].mlp.activation_fn = nn.GELU()
    return Pair(a, b, inputs)


@fault(
    "clip/text-pooled-at-the-first-word",
    "text_model",
    "getitem argmax eq to int",
    "values wiring constant missing extra",
)
def _() -> Pair:
    a, b, inputs = twins("clip")
    b.text_model.eos_token_id = int(inputs["input_ids"][0, 3])
    return Pair(a, b, inputs)


@fault("clip/class-token-last", "vision_model.embeddings", "cat", "wiring")
def _() -> Pair:
    a, b, inputs = twins("clip")

    def last(self: Any, pixel_values: Tensor, **kwargs: Any) -> Tensor:
        patches = self.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([patches, self.class_embedding.expand(patches.shape[0], 1, -1)], dim=1)
        return x + self.position_embedding(self.position_ids)

    plant(b.vision_model.embeddings, forward=last)
    return Pair(a, b, inputs)


@fault(
    "clip/causal-mask-missing",
    "text_model text_model.encoder.layers.0.self_attn",
    "CLIPEncoder scaled_dot_product_attention",
    "wiring constant values missing",
)
def _() -> Pair:
    a, b, inputs = twins("clip")
    for layer in b.text_model.encoder.layers:
        plant(layer.self_attn, forward=_unmasked)
    return Pair(a, b, inputs)


def _unmasked(self: Any, hidden_states: Tensor, **kwargs: Any) -> Any:
    shape = (*hidden_states.shape[:-1], -1, self.head_dim)
    q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
    x = F.scaled_dot_product_attention(q, k, v, scale=self.scale).transpose(1, 2)
    return self.out_proj(x.reshape(hidden_states.shape)), None


# Torch's own layers --------------------------------------------------------------------------------


@fault("tagger/directions-swapped", "lstm", "lstm", "weights")
def _() -> Pair:
    a, b, inputs = twins("tagger")
    lstm = b.lstm
    lstm.weight_ih_l0.data, lstm.weight_ih_l0_reverse.data = lstm.weight_ih_l0_reverse.data, lstm.weight_ih_l0.data
    return Pair(a, b, inputs)


@fault("tagger/gates-in-another-order", "lstm", "lstm", "weights values")
def _() -> Pair:
    a, b, inputs = twins("tagger")
    for name, weight in b.lstm.named_parameters():
        i, f, g, o = weight.data.chunk(4)
        weight.data = torch.cat([i, f, o, g])
        assert name
    return Pair(a, b, inputs)


@fault("tagger/softmax-over-words", ".", "log_softmax", "constant")
def _() -> Pair:
    a, b, inputs = twins("tagger")

    def over_words(self: Any, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(tokens))
        return F.log_softmax(self.tags(self.norm(states)), dim=1)

    plant(b, forward=over_words)
    return Pair(a, b, inputs)


@fault("tagger/not-batch-first", "lstm", "lstm", "constant values shape")
def _() -> Pair:
    a, b, inputs = twins("tagger")
    b.lstm.batch_first = False
    return Pair(a, b, inputs)


def upwards(self: Any, image: Tensor, order: int = 1, inplace: bool = False) -> Tensor:
    one = self.inc(image)
    x = self.pool(one)
    if inplace:
        one.mul_(0.5)
    two = self.down1(x)
    x = self.down2(self.pool(two))
    x = self.dec1(torch.cat([self.up1(x), two][::order], dim=1))
    x = self.dec2(torch.cat([self.up2(x), one], dim=1))
    return torch.sigmoid(self.out(self.gn(x)))


@fault("unet/joined-the-other-way-round", ".", "cat", "wiring")
def _() -> Pair:
    a, b, inputs = twins("unet")
    plant(b, forward=lambda self, image: upwards(self, image, -1))
    return Pair(a, b, inputs)


@fault("unet/kept-value-overwritten", ".", "mul_ mul", "overwritten extra")
def _() -> Pair:
    a, b, inputs = twins("unet")
    plant(b, forward=lambda self, image: upwards(self, image, 1, True))
    return Pair(a, b, inputs)


@fault("unet/corners-aligned", "up2", "interpolate", "constant")
def _() -> Pair:
    a, b, inputs = twins("unet")
    b.up2.align_corners = True
    return Pair(a, b, inputs)


@fault("unet/nearest", "up2", "interpolate", "constant")
def _() -> Pair:
    a, b, inputs = twins("unet")
    b.up2 = nn.Upsample(scale_factor=2, mode="nearest")
    return Pair(a, b, inputs)


@fault("unet/groups", "gn", "group_norm", "constant")
def _() -> Pair:
    a, b, inputs = twins("unet")
    b.gn.num_groups = 2
    return Pair(a, b, inputs)


@fault("unet/transposed-kernel", "up1", "conv_transpose2d", "weights values")
def _() -> Pair:
    a, b, inputs = twins("unet")
    b.up1.weight.data = b.up1.weight.data.transpose(2, 3).contiguous()
    return Pair(a, b, inputs)


@fault(
    "encoder/norm-after",
    "encoder.layers.1",
    "LayerNorm MultiheadAttention layer_norm multi_head_attention_forward add - TransformerEncoderLayer",
)
def _() -> Pair:
    a, b, inputs = twins("encoder")
    b.encoder.layers[1].norm_first = False
    return Pair(a, b, inputs)


# One fused operation does all of the layer.
@fault(
    "encoder/relu-for-gelu", "encoder.layers.0", "_transformer_encoder_layer_fwd relu gelu - TransformerEncoderLayer"
)
def _() -> Pair:
    a, b, inputs = twins("encoder")
    b.encoder.layers[0].activation_relu_or_gelu = 1  # what its fused kernel goes by
    return Pair(a, b, inputs)


@fault("encoder/mean-over-padding", ".", "mul sum", "missing wiring")
def _() -> Pair:
    a, b, inputs = twins("encoder")

    def over_all(self: Any, tokens: Tensor, padding: Tensor) -> Tensor:
        x = self.embed(tokens) * 4.0 + self.embed_places(torch.arange(tokens.shape[1]))
        x = self.encoder(x, src_key_padding_mask=padding)
        return self.classify(x.sum(1) / (~padding).unsqueeze(-1).sum(1))

    plant(b, forward=over_all)
    return Pair(a, b, inputs)


@fault("encoder/embedding-scale", ".", "mul", "constant")
def _() -> Pair:
    a, b, inputs = twins("encoder")

    def scaled(self: Any, tokens: Tensor, padding: Tensor) -> Tensor:
        x = self.embed(tokens) * 16.0 + self.embed_places(torch.arange(tokens.shape[1]))
        x = self.encoder(x, src_key_padding_mask=padding)
        keep = (~padding).unsqueeze(-1)
        return self.classify((x * keep).sum(1) / keep.sum(1))

    plant(b, forward=scaled)
    return Pair(a, b, inputs)
