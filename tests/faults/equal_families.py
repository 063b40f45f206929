"""Equal pairs of further families: nothing may be found in them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from . import ports_families, ports_images
from .case import Pair, equal
from .families import FAMILIES, family, given, pristine

__all__ = ["WRITTEN_AGAIN", "rewritten"]

WRITTEN_AGAIN: dict[str, Callable[[Any], nn.Module]] = {
    "gemma2": ports_families.gemma2,
    "neox": ports_families.neox,
    "bloom": ports_families.bloom,
    "distilbert": ports_families.distilbert,
    "convnext": ports_images.convnext,
    "resnet": ports_images.resnet,
    "unet": ports_images.unet,
    "tagger": ports_images.tagger,
    "encoder": ports_images.encoder,
}


def rewritten(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """The original, its port and inputs."""
    return pristine(name), WRITTEN_AGAIN[name](family(name)), given(name)


def _each(what: str, names: Any) -> Callable[[Callable[[str], Pair]], None]:
    def register(build: Callable[[str], Pair]) -> None:
        for name in names:
            equal(f"{what}/{name}")(functools.partial(build, name))

    return register


@_each("port", WRITTEN_AGAIN)
def _(name: str) -> Pair:
    return Pair(*rewritten(name))


@_each("original-of-port", WRITTEN_AGAIN)
def _(name: str) -> Pair:
    a, b, inputs = rewritten(name)
    return Pair(b, a, inputs)


@_each("twice", FAMILIES)
def _(name: str) -> Pair:
    return Pair(pristine(name), family(name), given(name))


@_each("float32-and-bfloat16", FAMILIES)
def _(name: str) -> Pair:
    inputs = given(name)
    low = {key: x.to(torch.bfloat16) if x.is_floating_point() else x for key, x in inputs.items()}
    return Pair(pristine(name), family(name, torch.bfloat16), inputs, low)


@_each("float64-and-float32", ("distilbert", "gemma2", "resnet", "unet", "tagger", "mamba", "swin"))
def _(name: str) -> Pair:
    inputs = given(name)
    high = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
    return Pair(family(name, torch.float64), pristine(name), high, inputs)


@_each("sdpa-and-eager", ("distilbert", "neox", "qwen3", "opt", "swin", "clip"))
def _(name: str) -> Pair:
    b = family(name)
    b.set_attn_implementation("eager")
    return Pair(pristine(name), b, given(name))


@_each("in-training-without-dropout", ("encoder", "clip", "gemma2", "convnext", "neox"))
def _(name: str) -> Pair:
    b = family(name)
    for module in b.modules():
        module.training = True
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    if name == "encoder":
        for module in b.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
    return Pair(pristine(name), b, given(name))


@_each("port-in-bfloat16", ("gemma2", "neox", "bloom", "distilbert"))
def _(name: str) -> Pair:
    a, b, inputs = rewritten(name)
    return Pair(a, b.to(torch.bfloat16), inputs)


@_each("folded-norms", ("resnet",))
def _(name: str) -> Pair:
    a, b = pristine(name), family(name)
    for part in b.modules():
        if type(part).__name__ == "ResNetConvLayer":
            part.convolution = torch.nn.utils.fuse_conv_bn_eval(part.convolution, part.normalization)
            part.normalization = nn.Identity()
    return Pair(a, b, given(name))


@equal("channels-last/resnet")
def _() -> Pair:
    b: Any = family("resnet")
    return Pair(pristine("resnet"), b.to(memory_format=torch.channels_last), given("resnet"))


class Compiled(nn.Module):
    """Layers compiled one by one, with the backend that compiles nothing."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = torch.compile(inner, backend="eager")

    def forward(self, **inputs: Tensor) -> Any:
        return self.inner(**inputs)


@_each("compiled", ("distilbert", "unet"))
def _(name: str) -> Pair:
    return Pair(pristine(name), Compiled(copy.deepcopy(pristine(name))), given(name))
