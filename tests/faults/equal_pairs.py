"""Pairs that compute the same, in another way: nothing may be found in them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUTanh

from .case import Pair, equal, port, ported
from .originals import NAMES, copies, inputs_of, original, reference

__all__ = ["renamed"]

WITH_CACHE = ("gpt2", "llama", "mixtral", "t5", "whisper")


def _each(what: str, names: tuple[str, ...] = NAMES) -> Callable[[Callable[[str], Pair]], None]:
    """Register one pair for each model: ``what/name``."""

    def register(build: Callable[[str], Pair]) -> None:
        for name in names:
            equal(f"{what}/{name}")(functools.partial(build, name))

    return register


@_each("port")
def _(name: str) -> Pair:
    return Pair(*ported(name))


@_each("port-of-eager")
def _(name: str) -> Pair:
    return Pair(*ported(name, "eager"))


@_each("original-of-port")  # the port is the reference
def _(name: str) -> Pair:
    a, b, inputs = ported(name)
    return Pair(b, a, inputs)


@_each("twice")
def _(name: str) -> Pair:
    return Pair(*copies(name), inputs_of(name))


@_each("sdpa-and-eager")
def _(name: str) -> Pair:
    return Pair(reference(name, "sdpa"), reference(name, "eager"), inputs_of(name))


@_each("float32-and-bfloat16")
def _(name: str) -> Pair:
    inputs = inputs_of(name)
    low = {key: x.to(torch.bfloat16) if x.is_floating_point() else x for key, x in inputs.items()}
    return Pair(reference(name), original(name, dtype=torch.bfloat16), inputs, low)


@_each("float64-and-float32")
def _(name: str) -> Pair:
    inputs = inputs_of(name)
    high = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
    a = original(name, dtype=torch.float64)
    if name == "mixtral":
        a.set_experts_implementation("eager")  # the fused product takes no float64
    return Pair(a, reference(name), high, inputs)


@_each("with-and-without-cache", WITH_CACHE)
def _(name: str) -> Pair:
    inputs = inputs_of(name)
    return Pair(*copies(name), {**inputs, "use_cache": True}, {**inputs, "use_cache": False})


@_each("the-same-row-three-times")  # values that repeat must not lead astray
def _(name: str) -> Pair:
    inputs = {key: x[:1].expand(3, *x.shape[1:]).contiguous() for key, x in inputs_of(name).items()}
    source = reference(name)
    return Pair(source, port(name, source), inputs)


# Renamed, wrapped, with more steps that change nothing ----------------------------------------------


def renamed(module: nn.Module, name: str = "x") -> nn.Module:
    """Other names for all modules below; code that asks for the old ones finds them."""
    children = {child: f"{child[0]}{name}{i}" for i, child in enumerate(module._modules) if not child.isdigit()}
    if children and type(module) is not nn.ModuleList:
        aliases = {old: property(lambda self, new=new: self._modules[new]) for old, new in children.items()}
        module.__class__ = type(type(module).__name__, (type(module),), {**aliases, "__module__": __name__})
        for old, new in children.items():
            module._modules[new] = module._modules.pop(old)
    for child in module._modules.values():
        if child is not None:
            renamed(child, name + "x")
    return module


@_each("renamed", ("bert", "llama", "t5", "vit", "whisper"))
def _(name: str) -> Pair:
    a, b = copies(name, "sdpa")
    return Pair(a, renamed(b), inputs_of(name))


class Wrapper(nn.Module):
    """One more level, and keyword arguments passed on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.module = inner

    def forward(self, **inputs: Any) -> Any:
        return self.module(**inputs)


@_each("wrapped", ("bert", "gpt2", "mixtral", "vit"))
def _(name: str) -> Pair:
    a, b = copies(name)
    return Pair(a, Wrapper(Wrapper(b)), inputs_of(name))


class Adapted(nn.Module):
    """A linear layer with a low-rank update that is still zero, as an adapter begins."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A, self.lora_B = (
            nn.Linear(base.in_features, 2, bias=False),
            nn.Linear(2, base.out_features, bias=False),
        )
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * 0.5


@equal("adapters-at-zero/llama")
def _() -> Pair:
    a, b = copies("llama")
    for layer in b.model.layers:
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Adapted(layer.self_attn.v_proj)
    return Pair(a, b, inputs_of("llama"))


@equal("idle-modules-inserted/bert")
def _() -> Pair:
    a, b = copies("bert")
    for layer in b.encoder.layer:
        layer.output.dense = nn.Sequential(nn.Identity(), layer.output.dense, nn.Dropout(0.5).eval())
    return Pair(a, b, inputs_of("bert"))


@equal("experts-one-by-one/mixtral")
def _() -> Pair:
    a, b = copies("mixtral")
    b.set_experts_implementation("eager")
    return Pair(a, b, inputs_of("mixtral"))


@equal("tanh-gelu-in-one-step/gpt2")
def _() -> Pair:
    a, b = copies("gpt2")
    for block in b.transformer.h:
        block.mlp.act = GELUTanh()
    return Pair(a, b, inputs_of("gpt2"))
