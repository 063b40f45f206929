"""Weights that no checkpoint filled: matrices that are zero, or as they were drawn, among others that are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from fxdebug.capture.probe import members
from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import counted
from fxdebug.features.shared.drawn.as_drawn import (
    LAYERS,
    LEAST,
    drawn_as,
    is_readable,
    is_trained,
    own,
    parts_as_drawn,
)

ADAPTERS = ("lora", "adapter")
EXPERTS = "expert"  # one that no router chose is as it was drawn in a trained model, too
ADVICE_ON_NAMES = (
    "Look whether the checkpoint has it under another name (fxdebug weights FILE MODEL), or whether it is to be tied "
    "to another weight."
)


@dataclass(frozen=True)
class _Layer:
    path: str
    module: nn.Module
    weight: Tensor
    zero: bool
    drawn: str


def find_not_loaded(model: nn.Module) -> Iterator[Finding]:
    """Yield layers whose weights are zero or as drawn, where the rest of the model is trained.

    In a model whose norms and biases are as at their start nothing is trained, and nothing is found. A zero matrix that
    asks for gradients in a model most of which does not is that of an adapter that is about to learn.
    """
    parts = [] if model.training else parts_as_drawn(model)
    modules = dict(members.named_modules_of(model))
    for part in parts:
        if any(word in part.path.lower() for word in (*ADAPTERS, EXPERTS)):
            continue
        all_of_it = f"all {part.layers} layers of {part.path}"
        what = f"{all_of_it} are as torch draws them, and {part.others} other layers are trained"
        if part.scaled == part.layers:
            what = f"the directions of {all_of_it} are as torch draws them, and their lengths are trained"
        yield Finding(
            rule="not loaded",
            severity=WARNING,
            path=part.path,
            call=f"{part.path}#0",
            op=type(modules[part.path]).__name__,
            what=what,
            advice=ADVICE_ON_NAMES,
        )
    if not is_trained(model):
        return
    spread = _initializer_range(model)
    layers = [*_layers(model, spread)]
    as_at_start = [layer for layer in layers if layer.zero or layer.drawn]
    if 2 * len(as_at_start) >= len(layers):
        return
    frozen = sum(not layer.weight.requires_grad for layer in layers)
    for layer in as_at_start:
        name = members.join(layer.path, "weight")
        if layer.weight.requires_grad and 2 * frozen > len(layers):
            continue
        if any(word in name.lower() for word in ADAPTERS) or any(name.startswith(f"{part.path}.") for part in parts):
            continue
        rest = f"{len(layers) - len(as_at_start)} of {len(layers)} matrices of the model are trained"
        yield Finding(
            rule="not loaded",
            severity=WARNING,
            path=layer.path,
            call=f"{layer.path}#0",
            op=type(layer.module).__name__,
            what=f"{name} is all zero: {rest}" if layer.zero else f"{name} is as it was drawn ({layer.drawn}): {rest}",
            advice=ADVICE_ON_NAMES,
        )


def note_as_made(model: nn.Module) -> Iterator[str]:
    """Yield a note about a model in evaluation of which every norm is as at its start, and no matrix tells of training.

    It is no finding: a model may be looked at before it learns.
    """
    if model.training:
        return
    norms: list[bool] = []
    for _, module in members.named_modules_of(model):
        weight, bias = own(module, "weight"), own(module, "bias")
        if weight is not None and weight.ndim == 1 and weight.numel() > 1 and is_readable(weight):
            at_start = bool((weight == 1).all()) and (bias is None or not bool(bias.any()))
            norms.append(at_start)
    layers = [one for one in _layers(model, _initializer_range(model)) if one.weight.numel() >= LEAST]
    drawn = sum(bool(one.drawn) for one in layers)
    if len(norms) > 1 and all(norms) and not any(one.zero for one in layers):
        matrices = f", and {counted(drawn, 'layer')} the weights that torch draws" if drawn else ""
        yield (
            f"all {len(norms)} norms have the weights and biases of their start{matrices}: the model is as it was "
            "made; if a checkpoint was loaded, nothing of it was taken (fxdebug weights FILE MODEL)"
        )


def _layers(model: nn.Module, spread: float | None) -> Iterator[_Layer]:
    seen: set[int] = set()
    for path, module in members.named_modules_of(model):
        weight = own(module, "weight") if isinstance(module, LAYERS) else None
        if weight is None or id(weight) in seen or not is_readable(weight) or min(weight.shape[:2]) < 2:
            continue
        seen.add(id(weight))
        numbers = weight.detach()
        if not bool(numbers.any()):
            yield _Layer(path, module, weight, True, "")
        elif numbers.numel() >= LEAST:
            yield _Layer(path, module, weight, False, drawn_as(module, numbers, spread))


def _initializer_range(model: nn.Module) -> float | None:
    value = getattr(getattr(model, "config", None), "initializer_range", None)
    return float(value) if isinstance(value, float) and value > 0 else None
