"""Does ``fxdebug.compare`` name a fault that is planted in a real port? ``python tools/lib_port_faults.py [NAME ...]``.

Plants one fault at a time in the ports of ``lib_ports``: weights whose slices are exchanged or missing, steps that are
skipped, other operands, masks, scales and constants. Prints a line for each miss and a table: was anything found, was
the right call named, and in it the operation? Runs what has one of the names in its own; everything without any.
``--write`` puts the table into ``docs/other-libraries.md``. Exits with 1 if a fault is told as
equal or has no effect, or too few are named.
"""

from __future__ import annotations

import argparse
import os
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
import lib_ports
from running import put_between

Edit = Callable[[nn.Module], Any]
MODES = ("stats", "tensors")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "other-libraries.md"
LEAST_NAMED = 76 / 79  # the share of faults whose call and operation must be right


@dataclass(frozen=True)
class Planted:
    """A fault in a port, and the right answers: the calls and the operations that may be named."""

    port: str
    name: str
    edit: Edit
    calls: frozenset[str]
    ops: frozenset[str]


FAULTS: list[Planted] = []


def planted(port: str, name: str, calls: str, ops: str, edit: Edit) -> None:
    """Add a fault; calls and operations are words apart by blanks, ``.`` is the root."""
    paths = frozenset("" if path == "." else path for path in calls.split())
    FAULTS.append(Planted(port, name, edit, paths, frozenset(ops.split())))


# Edits ---------------------------------------------------------------------------------------------


def _weight(model: nn.Module, path: str) -> Tensor:
    module, _, name = path.rpartition(".")
    weight = getattr(model.get_submodule(module), name)
    assert isinstance(weight, Tensor)
    return weight


def exchanged(paths: str, order: Sequence[int], sizes: int | Sequence[int] = 3, dim: int = 0) -> Edit:
    """Put the parts of weights into another order; ``sizes`` as ``split`` takes them, or how many equal parts."""

    def edit(model: nn.Module) -> None:
        for path in paths.split():
            weight = _weight(model, path)
            parts = weight.chunk(sizes, dim) if isinstance(sizes, int) else weight.split(list(sizes), dim)
            weight.copy_(torch.cat([parts[i] for i in order], dim).clone())

    return edit


def changed(paths: str, change: Callable[[Tensor], Tensor]) -> Edit:
    """Replace the numbers of weights by those of a function of them."""

    def edit(model: nn.Module) -> None:
        for path in paths.split():
            weight = _weight(model, path)
            weight.copy_(change(weight.clone()).reshape(weight.shape))

    return edit


def zeroed(path: str, part: int = 0, parts: int = 1) -> Edit:
    """Set a part of a weight to zero, as where it was never copied."""

    def edit(model: nn.Module) -> None:
        _weight(model, path).chunk(parts)[part].zero_()

    return edit


def replaced(path: str, make: Callable[[], nn.Module]) -> Edit:
    """Put another module in the place of one."""

    def edit(model: nn.Module) -> None:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, make())

    return edit


def swapped(one: str, other: str) -> Edit:
    """Exchange two modules or weights of one module."""

    def edit(model: nn.Module) -> None:
        (parent, _, a), b = one.rpartition("."), other.rpartition(".")[2]
        module = model.get_submodule(parent)
        first, second = getattr(module, a), getattr(module, b)
        setattr(module, a, second)
        setattr(module, b, first)

    return edit


def put(paths: str, **attributes: Any) -> Edit:
    """Set attributes of modules."""

    def edit(model: nn.Module) -> None:
        for path in paths.split():
            for name, value in attributes.items():
                setattr(model.get_submodule("" if path == "." else path), name, value)

    return edit


def method(path: str, name: str, function: Callable[..., Any]) -> Edit:
    """Exchange a method of a module."""

    def edit(model: nn.Module) -> None:
        module = model.get_submodule("" if path == "." else path)
        object.__setattr__(module, name, types.MethodType(function, module))

    return edit


def by_head(heads: int, parts: int = 3) -> Callable[[Tensor], Tensor]:
    """Interleave the parts of a weight head by head."""
    return lambda weight: weight.reshape(parts, heads, -1, *weight.shape[1:]).transpose(0, 1)


# Code with a fault ---------------------------------------------------------------------------------


def _timm_heads(self: Any, x: Tensor, order: Sequence[int] = (0, 1, 2)) -> list[Tensor]:
    parts = self.qkv(x).reshape(*x.shape[:2], 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
    return [parts[i] for i in order]


def key_first(self: Any, x: Tensor, **_: Any) -> Tensor:
    key, query, value = _timm_heads(self, x)
    return self.proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def unscaled(self: Any, x: Tensor, **_: Any) -> Tensor:
    return self.proj(F.scaled_dot_product_attention(*_timm_heads(self, x), scale=1.0).transpose(1, 2).flatten(2))


def causal(self: Any, x: Tensor, **_: Any) -> Tensor:
    return self.proj(F.scaled_dot_product_attention(*_timm_heads(self, x), is_causal=True).transpose(1, 2).flatten(2))


def second_residual_from_x(self: Any, x: Tensor, **_: Any) -> Tensor:
    return x + self.mlp(self.norm2(x + self.attn(self.norm1(x))))


def second_norm_of_x(self: Any, x: Tensor, **_: Any) -> Tensor:
    return x + self.attn(self.norm1(x)) + self.mlp(self.norm2(x))


def first_residual_missing(self: Any, x: Tensor, **_: Any) -> Tensor:
    h = self.attn(self.norm1(x))
    return h + self.mlp(self.norm2(h))


def llama_second_residual_from_x(self: Any, x: Tensor, cos: Tensor, sin: Tensor, *_: Any) -> Tensor:
    return x + self.mlp(self.norm_2(x + self.attn(self.norm_1(x), cos, sin)))


def not_causal(self: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def tiled(self: Any, x: Tensor, cos: Tensor, sin: Tensor, *_: Any) -> Tensor:
    from litgpt.model import apply_rope

    heads, groups, size = self.config.n_head, self.config.n_query_groups, self.config.head_size
    q, k, v = self.qkv(x).split((heads * size, groups * size, groups * size), dim=-1)
    q, k, v = (y.view(*x.shape[:2], -1, size).transpose(1, 2) for y in (q, k, v))
    q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
    k, v = (y.repeat(1, heads // groups, 1, 1) for y in (k, v))
    return self.proj(self.scaled_dot_product_attention(q, k, v).flatten(2))


def tune_tiled(self: Any, x: Tensor, y: Any = None, **_: Any) -> Tensor:
    q, k, v = (p(x).view(*x.shape[:2], -1, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
    q, k, v = (z.transpose(1, 2) for z in (self.pos_embeddings(q), self.pos_embeddings(k), v))
    k, v = (z.repeat(1, self.num_heads // self.num_kv_heads, 1, 1) for z in (k, v))
    return self.output_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def gelu_for_silu(self: Any, x: Tensor) -> Tensor:
    return self.proj(F.gelu(self.fc_1(x)) * self.fc_2(x))


def keys_of_the_decoder(self: Any, x: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    mixed, _ = self.qkv_attention(self.query(x), self.key(x), self.value(x), None)
    return self.out(mixed), None


def cross_residual_from_x(self: Any, x: Tensor, xa: Tensor, mask: Any = None, **_: Any) -> Tensor:
    h = x + self.attn(self.attn_ln(x), mask=mask)[0]
    y = x + self.cross_attn(self.cross_attn_ln(h), xa)[0]
    return y + self.mlp(self.mlp_ln(y))


def second_gelu_missing(self: Any, x: Tensor) -> Tensor:
    x = self.conv2(F.gelu(self.conv1(x))).permute(0, 2, 1) + self.positional_embedding
    for block in self.blocks:
        x = block(x)
    return self.ln_post(x)


def from_the_second_position(self: Any, x: Tensor, xa: Tensor, **_: Any) -> Tensor:
    x = self.token_embedding(x) + self.positional_embedding[2 : 2 + x.shape[-1]]
    for block in self.blocks:
        x = block(x, xa, mask=self.mask)
    return self.ln(x) @ self.token_embedding.weight.T


def smaller_scale(self: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any = None) -> tuple[Tensor, None]:
    q, k, v = (z.view(*z.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) for z in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, scale=0.05).permute(0, 2, 1, 3).flatten(2), None


def without_mask(path: str) -> Edit:
    """Drop the mask of an attention of whisper."""

    def edit(model: nn.Module) -> None:
        right = model.get_submodule(path).forward
        method(path, "forward", lambda self, x, xa=None, mask=None, kv_cache=None: right(x, xa, None, kv_cache))(model)

    return edit


def last_token(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:, -1], x[:, :-1]


def residual_missing(self: Any, x: Tensor) -> Tensor:
    x = self.act1(self.bn1(self.conv1(x)))
    x = self.act2(self.bn2(self.conv2(x)))
    return self.act3(self.bn3(self.conv3(x)))


def merged_in_another_order(self: Any, x: Tensor) -> Tensor:
    parts = [x[:, i::2, j::2] for j, i in ((0, 0), (1, 0), (0, 1), (1, 1))]
    return self.reduction(self.norm(torch.cat(parts, -1)))


def shifted_the_other_way(path: str) -> Edit:
    """Turn the first shift of torchvision's window attention around, and the second one back."""

    def edit(model: nn.Module) -> None:
        module = model.get_submodule(path)
        right = module.forward

        def forward(self: Any, x: Tensor) -> Tensor:
            turned = torch.roll(x, shifts=tuple(2 * s for s in self.shift_size), dims=(1, 2))
            return right(turned)

        method(path, "forward", forward)(model)

    return edit


def identity() -> nn.Module:
    """Skip a step."""
    return nn.Identity()


# The faults ----------------------------------------------------------------------------------------

LINEAR, NORM, ADD = "linear Linear", "layer_norm LayerNorm", "add iadd"
ATTENTION = "scaled_dot_product_attention"
FUSED = f"{LINEAR} multi_head_attention_forward MultiheadAttention"
RMS = "rms_norm RMSNorm LlamaRMSNorm"

for _port, _call in (
    ("vit/timm", "blocks.1.attn.qkv"), ("deit/timm", "blocks.1.attn.qkv"), ("swin/timm", "layers.0.blocks.1.attn.qkv"),
    ("sam/segment_anything", "image_encoder.blocks.1.attn.qkv"), ("swin/torchvision", "features.1.1.attn.qkv"),
):  # fmt: skip
    _w, _b = f"{_call}.weight", f"{_call}.bias"
    _at = _call.removesuffix(".qkv") if _port == "swin/torchvision" else _call  # its function uses the weights itself
    planted(_port, "query and key exchanged", _at, LINEAR, exchanged(f"{_w} {_b}", (1, 0, 2)))
    planted(_port, "key and value exchanged in the weight alone", _at, LINEAR, exchanged(_w, (0, 2, 1)))
    planted(_port, "bias of value missing", _at, LINEAR, zeroed(_b, 2, 3))

for _port, _call in (
    ("vit/torchvision", "encoder.layers.encoder_layer_1.self_attention"),
    ("clip/open_clip", "visual.transformer.resblocks.1.attn"), ("clip/open_clip", "transformer.resblocks.1.attn"),
):  # fmt: skip
    _w, _b = f"{_call}.in_proj_weight", f"{_call}.in_proj_bias"
    planted(_port, f"{_call}: value first", _call, FUSED, exchanged(f"{_w} {_b}", (2, 0, 1)))
    planted(_port, f"{_call}: bias missing", _call, FUSED, zeroed(_b))
    planted(_port, f"{_call}: out_proj transposed", _call, FUSED, changed(f"{_call}.out_proj.weight", lambda w: w.T))

_vit = "vit/timm"
planted(_vit, "interleaved by head", "blocks.1.attn.qkv", LINEAR, changed("blocks.1.attn.qkv.weight", by_head(4)))
planted(_vit, "bias exchanged", "blocks.1.attn.qkv", LINEAR, exchanged("blocks.1.attn.qkv.bias", (2, 1, 0)))
planted(
    _vit, "projection transposed", "blocks.1.attn.proj", LINEAR, changed("blocks.1.attn.proj.weight", lambda w: w.T)
)
planted(_vit, "key taken first", "blocks.1.attn", "unbind getitem", method("blocks.1.attn", "forward", key_first))
planted(_vit, "scale missing", "blocks.1.attn", ATTENTION, method("blocks.1.attn", "forward", unscaled))
planted(_vit, "causal", "blocks.1.attn", ATTENTION, method("blocks.1.attn", "forward", causal))
planted(_vit, "twice the heads", "blocks.1.attn", "reshape", put("blocks.1.attn", num_heads=8, head_dim=4))
planted(_vit, "second residual from x", "blocks.1", ADD, method("blocks.1", "forward", second_residual_from_x))
planted(_vit, "first residual missing", "blocks.1", ADD, method("blocks.1", "forward", first_residual_missing))
planted(
    _vit,
    "second norm of x",
    "blocks.1 blocks.1.norm2",
    f"{NORM} {ADD}",
    method("blocks.1", "forward", second_norm_of_x),
)
planted(_vit, "second norm skipped", "blocks.1 blocks.1.norm2", NORM, replaced("blocks.1.norm2", identity))
planted(_vit, "relu", "blocks.1.mlp.act", "relu", replaced("blocks.1.mlp.act", nn.ReLU))
planted(_vit, "epsilon", "blocks.0.norm1", NORM, put("blocks.0.norm1 blocks.1.norm1", eps=1e-2))
planted(_vit, "bias of the projection missing", "blocks.1.attn.proj", LINEAR, put("blocks.1.attn.proj", bias=None))

_clip = "clip/open_clip"
planted(_clip, "ln_pre skipped", "visual", NORM, replaced("visual.ln_pre", identity))
planted(
    _clip,
    "gelu",
    "visual.transformer.resblocks.0.mlp.gelu",
    "gelu GELU",
    replaced("visual.transformer.resblocks.0.mlp.gelu", nn.GELU),
)
planted(_clip, "last token", "visual", "getitem", method("visual", "_global_pool", last_token))

_swin = "swin/torchvision"
planted(_swin, "merged in another order", "features.2", "cat", method("features.2", "forward", merged_in_another_order))
planted(_swin, "epsilon", "features.1.0.norm1", NORM, put("features.1.0.norm1", eps=1e-1))
planted(
    _swin, "shifted the other way", "features.1.1.attn features.1.1", "roll", shifted_the_other_way("features.1.1.attn")
)

_sam = "sam/segment_anything"
planted(
    _sam,
    "tables of rows and columns exchanged",
    "image_encoder.blocks.1.attn",
    "getitem einsum add get_attr",
    swapped("image_encoder.blocks.1.attn.rel_pos_h", "image_encoder.blocks.1.attn.rel_pos_w"),
)
planted(_sam, "scale missing", "image_encoder.blocks.1.attn", "mul", put("image_encoder.blocks.1.attn", scale=1.0))
planted(_sam, "positions skipped", "image_encoder", "add", put("image_encoder", pos_embed=None))

_resnet = "resnet/timm"
planted(
    _resnet,
    "running variance",
    "layer2.0.bn2",
    "batch_norm BatchNorm2d",
    changed("layer2.0.bn2.running_var", torch.ones_like),
)
planted(_resnet, "relu missing", "layer2.0 layer2.0.act2", "relu ReLU", replaced("layer2.0.act2", identity))
planted(
    _resnet, "residual missing", "layer3.0", "add iadd ResNetShortCut", method("layer3.0", "forward", residual_missing)
)
planted(
    _resnet,
    "kernel flipped",
    "layer2.0.conv2",
    "conv2d Conv2d",
    changed("layer2.0.conv2.weight", lambda w: w.flip(2, 3)),
)
planted(
    "resnet/torchvision",
    "kernel transposed",
    "layer2.0.conv2",
    "conv2d Conv2d",
    changed("layer2.0.conv2.weight", lambda w: w.transpose(2, 3)),
)
planted("resnet/torchvision", "epsilon", "layer1.0.bn1", "batch_norm BatchNorm2d", put("layer1.0.bn1", eps=0.1))
planted("convnext/timm", "epsilon", "stages.0.blocks.0.norm", NORM, put("stages.0.blocks.0.norm", eps=0.1))
planted("convnext/timm", "relu", "stages.0.blocks.0.mlp.act", "relu", replaced("stages.0.blocks.0.mlp.act", nn.ReLU))
planted("convnext/torchvision", "bias missing", "features.1.0.block.3", LINEAR, put("features.1.0.block.3", bias=None))

_lit = "transformer.h.1.attn"
for _port in ("llama/litgpt", "mistral/litgpt", "qwen2/litgpt"):
    planted(
        _port,
        "key and value exchanged",
        f"{_lit}.qkv",
        LINEAR,
        exchanged(f"{_lit}.qkv.weight", (0, 2, 1), (32, 16, 16)),
    )
    planted(
        _port,
        "second residual from x",
        "transformer.h.1",
        ADD,
        method("transformer.h.1", "forward", llama_second_residual_from_x),
    )
planted("llama/litgpt", "heads of keys tiled", _lit, "repeat", method(_lit, "forward", tiled))
planted("llama/litgpt", "not causal", _lit, ATTENTION, method(_lit, "scaled_dot_product_attention", not_causal))
planted(
    "llama/litgpt",
    "gate and up exchanged",
    "transformer.h.1.mlp transformer.h.1.mlp.fc_1",
    f"{LINEAR} silu",
    swapped("transformer.h.1.mlp.fc_1", "transformer.h.1.mlp.fc_2"),
)
planted(
    "mistral/litgpt", "gelu", "transformer.h.1.mlp", "gelu", method("transformer.h.1.mlp", "forward", gelu_for_silu)
)
planted("gemma/litgpt", "weights of value missing", f"{_lit}.qkv", LINEAR, zeroed(f"{_lit}.qkv.weight", 3, 4))
planted("qwen2/litgpt", "bias missing", f"{_lit}.qkv", LINEAR, zeroed(f"{_lit}.qkv.bias"))
planted(
    "neox/litgpt", "still interleaved", f"{_lit}.qkv", LINEAR, changed(f"{_lit}.qkv.weight {_lit}.qkv.bias", by_head(4))
)
planted("neox/litgpt", "bias still interleaved", f"{_lit}.qkv", LINEAR, changed(f"{_lit}.qkv.bias", by_head(4)))
planted("neox/litgpt", "not causal", _lit, ATTENTION, method(_lit, "scaled_dot_product_attention", not_causal))

_tune = "layers.1.attn"
planted(
    "llama/torchtune",
    "query not permuted",
    f"{_tune}.q_proj",
    LINEAR,
    changed(f"{_tune}.q_proj.weight", lambda w: w.view(4, 4, 2, 32).transpose(1, 2)),
)
planted("llama/torchtune", "heads of keys tiled", _tune, "repeat", method(_tune, "forward", tune_tiled))
planted("llama/torchtune", "not causal", _tune, ATTENTION, put(_tune, is_causal=False))
planted(
    "mistral/torchtune",
    "norm skipped",
    "layers.1 layers.1.mlp_norm",
    f"{RMS} MistralRMSNorm",
    replaced("layers.1.mlp_norm", identity),
)
planted("qwen2/torchtune", "bias of value missing", f"{_tune}.v_proj", LINEAR, zeroed(f"{_tune}.v_proj.bias"))
planted(
    "t5/torchtune", "relu", "layers.1.mlp layers.1.mlp.activation", "relu", replaced("layers.1.mlp.activation", nn.ReLU)
)

_block = "decoder.blocks.1"
planted(
    "whisper/openai",
    "keys from the decoder",
    f"{_block}.cross_attn {_block}.cross_attn.key {_block}",
    LINEAR,
    method(f"{_block}.cross_attn", "forward", keys_of_the_decoder),
)
planted("whisper/openai", "cross residual from x", _block, ADD, method(_block, "forward", cross_residual_from_x))
planted("whisper/openai", "not causal", f"{_block}.attn", ATTENTION, without_mask(f"{_block}.attn"))
planted(
    "whisper/openai",
    "bias of value missing",
    f"{_block}.cross_attn.value",
    LINEAR,
    zeroed(f"{_block}.cross_attn.value.bias"),
)
planted("whisper/openai", "second gelu missing", "encoder", "gelu", method("encoder", "forward", second_gelu_missing))
planted(
    "whisper/openai",
    "positions from the second",
    "decoder",
    "getitem add",
    method("decoder", "forward", from_the_second_position),
)
planted(
    "whisper/openai",
    "scale",
    "encoder.blocks.1.attn",
    f"{ATTENTION} mul",
    method("encoder.blocks.1.attn", "qkv_attention", smaller_scale),
)
planted(
    "wav2vec2/torchaudio",
    "out_proj transposed",
    "encoder.transformer.layers.1.attention.out_proj",
    LINEAR,
    changed("encoder.transformer.layers.1.attention.out_proj.weight", lambda w: w.T),
)
planted(
    "wav2vec2/torchaudio",
    "bias of key missing",
    "encoder.transformer.layers.1.attention.q_proj",
    LINEAR,
    zeroed("encoder.transformer.layers.1.attention.q_proj.bias"),
)
planted(
    "mamba/mambapy",
    "halves of in_proj exchanged",
    "mamba.layers.1.mixer.in_proj",
    LINEAR,
    exchanged("mamba.layers.1.mixer.in_proj.weight", (1, 0), 2),
)
planted(
    "mamba/mambapy",
    "norm's weight",
    "mamba.layers.1.norm",
    f"{RMS} mul",
    changed("mamba.layers.1.norm.weight", torch.ones_like),
)


_BN = "batch_norm BatchNorm2d BatchNormAct2d"
_wide = "resnet-torchvision/timm"
planted(_wide, "epsilon", "layer2.0.bn2", _BN, put("layer2.0.bn2", eps=0.1))
planted(_wide, "groups exchanged", "layer3.0.conv2", "conv2d Conv2d", exchanged("layer3.0.conv2.weight", (1, 0), 2))
planted(_wide, "relu missing", "layer2.0 layer2.0.act2", "relu ReLU", replaced("layer2.0.act2", identity))

_dense = "densenet-torchvision/timm"
_layer = "features.denseblock1.denselayer2"
planted(_dense, "running mean", f"{_layer}.norm1", _BN, changed(f"{_layer}.norm1.running_mean", torch.zeros_like))
planted(
    _dense, "relu missing", f"{_layer}.norm1 {_layer}.norm1.act {_layer}", "relu ReLU",
    replaced(f"{_layer}.norm1.act", identity),
)  # fmt: skip
planted(
    _dense, "inputs exchanged", "features.denseblock1.denselayer1.conv1", "conv2d Conv2d",
    exchanged("features.denseblock1.denselayer1.conv1.weight", (1, 0), 2, 1),
)  # fmt: skip

_mobile = "mobilenetv3-torchvision/timm"
planted(_mobile, "epsilon", "blocks.4.0.bn1", _BN, put("blocks.4.0.bn1", eps=5.0))
planted(
    _mobile, "gate left out", "blocks.4.2.se blocks.4.2.se.gate", "hardsigmoid Hardsigmoid",
    replaced("blocks.4.2.se.gate", identity),
)  # fmt: skip
planted(_mobile, "relu", "blocks.3.0.bn1.act blocks.3.0.bn1", "relu ReLU", replaced("blocks.3.0.bn1.act", nn.ReLU))

for _vits in ("vit-torchvision/timm", "dinov2/timm"):
    _at = "blocks.1.attn.qkv"
    planted(
        _vits, "query and key exchanged", f"{_at} blocks.1.attn", FUSED,
        exchanged(f"{_at}.weight {_at}.bias", (1, 0, 2)),
    )  # fmt: skip
    planted(_vits, "scale missing", "blocks.1.attn", f"{ATTENTION} multi_head_attention_forward",
            method("blocks.1.attn", "forward", unscaled))  # fmt: skip
planted(
    "dinov2/timm",
    "layer scale missing",
    "blocks.1.ls1 blocks.1",
    "mul Dinov2LayerScale",
    replaced("blocks.1.ls1", identity),
)

_phi = "phi3/torchtune"
planted(
    _phi, "gate and up exchanged", "layers.1.mlp layers.1.mlp.w1", f"{LINEAR} silu",
    swapped("layers.1.mlp.w1", "layers.1.mlp.w3"),
)  # fmt: skip
planted(_phi, "not causal", _tune, ATTENTION, put(_tune, is_causal=False))
planted(_phi, "norm skipped", "layers.1 layers.1.sa_norm", f"{RMS} Phi3RMSNorm", replaced("layers.1.sa_norm", identity))


# Running -------------------------------------------------------------------------------------------


def plain(op: str | None) -> str:
    """Return an operation's name without what says how it was written."""
    name = (op or "-").strip("_")
    return {"iadd": "add", "imul": "mul", "rmul": "mul", "truediv": "div"}.get(name, name)


LEAST_EFFECT = 1e-4  # of a fault on the result: rounding in right ports is 2e-6 and less


def answers(fault: Planted) -> Iterable[tuple[str, str, bool, bool]]:
    """Yield for each mode what was named, and whether the call and the operation are right.

    Raises ``ValueError`` for a fault without effect on what the port returns.
    """
    pair = lib_ports.built(fault.port)
    traces = {mode: _traced(pair.reference, pair.inputs, mode) for mode in MODES}
    with torch.no_grad():
        fault.edit(pair.port)
    effect = pair.difference()
    if effect <= LEAST_EFFECT:
        raise ValueError(f"{fault.port}, {fault.name}: the result differs by {effect:.2g} only")
    for mode in MODES:
        first = fxdebug.compare(traces[mode], _traced(pair.port, pair.inputs_b, mode)).first
        if first is None:
            yield mode, "equal", False, False
            continue
        call = first.path in fault.calls
        op = call and plain(first.op) in {plain(name) for name in fault.ops}
        yield mode, f"{first.where} {first.kind} ({first.because})", call, op


def _traced(model: nn.Module, inputs: Any, mode: str) -> fxdebug.Trace:
    with torch.no_grad():
        return fxdebug.fx_debug(model, inputs, values=mode)


def main(arguments: list[str]) -> int:
    """Run the faults, print misses and the table; return 1 if a bar is missed or a fault is none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of ports and faults")
    parser.add_argument("--write", action="store_true", help=f"put the table into docs/{PAGE.name}")
    options = parser.parse_args(arguments)
    if options.write and options.names:
        parser.error("--write puts down what came out for all faults: it takes no names")
    torch.set_num_threads(1)
    lib_ports.names()
    counts: Counter[tuple[str, str]] = Counter()
    without_effect = 0
    for fault in FAULTS:
        if options.names and not any(name in f"{fault.port} {fault.name}" for name in options.names):
            continue
        try:
            found = list(answers(fault))
        except ImportError as error:
            print(f"skipped {fault.port}: {error}", flush=True)
            continue
        except ValueError as error:
            print(f"no fault: {error}", flush=True)
            without_effect += 1
            continue
        for mode, named, call, op in found:
            row = {"faults": True, "found": named != "equal", "call right": call, "operation right": op}
            counts.update((mode, column) for column, is_so in row.items() if is_so)
            if not op:
                print(f"{fault.port}, {fault.name} [{mode}]: {named[:220]}", flush=True)
    table = _table(counts)
    print(f"\n{table}")
    if options.write:
        put_between(PAGE, "port-faults", table)
    return int(without_effect or not all(_holds(counts, mode) for mode in MODES))


def _holds(counts: Counter[tuple[str, str]], mode: str) -> bool:
    """Is every fault found, and are enough of them named?"""
    faults = counts[mode, "faults"]
    return counts[mode, "found"] == faults and counts[mode, "operation right"] >= LEAST_NAMED * faults


def _table(counts: Counter[tuple[str, str]]) -> str:
    columns = ("faults", "found", "call right", "operation right")
    lines = ["| mode | " + " | ".join(columns) + " |", "|---" + "|---:" * len(columns) + "|"]
    lines += [f"| {mode} | " + " | ".join(str(counts[mode, column]) for column in columns) + " |" for mode in MODES]
    return "\n".join(lines)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.exit(main(sys.argv[1:]))
