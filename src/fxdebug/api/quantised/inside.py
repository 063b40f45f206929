"""Modules of a quantised model that its original has none of: how much each changes what it is given, or stands for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, untracked

LARGE = 0.1  # of what a module is given, from which its change is no rounding of a few bits
APART = 4.0  # times the change of the next module of the same layer


def quantisers_inside(
    model: nn.Module, originals: Mapping[str, nn.Module], paired: Collection[str], run: Callable[[], object]
) -> dict[str, str]:
    """Run a quantised model and say, by path, which module inside of a layer changes its numbers most.

    Looked at are modules in layers (``originals``, by the path of the layer in ``model``) that the original calls none
    like, so that they are not ``paired``: those that return a tensor of the shape that they are given, as a fake
    quantisation does, and those that are given none and return one of the shape of a parameter of the original. One
    that stands out is told.
    """
    changes: dict[str, dict[str, tuple[float, str]]] = {}
    handles = []
    for path, module in members.named_modules_of(model):
        layer = next((one for one in originals if one and path.startswith(f"{one}.")), None)
        if layer is None:
            continue
        if path in paired:
            continue
        look = _looker(changes.setdefault(layer, {}), path[len(layer) + 1 :], originals[layer])
        handles.append(module.register_forward_hook(look))
    if not handles:
        return {}
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    told = {}
    for layer, found in changes.items():
        ordered = sorted(found.items(), key=lambda one: -one[1][0])
        if ordered and ordered[0][1][0] >= LARGE and all(one[1][0] * APART <= ordered[0][1][0] for one in ordered[1:]):
            own, (error, text) = ordered[0]
            others = f" (the others of {layer} by {ordered[1][1][0]:.2g} at most)" if len(ordered) > 1 else ""
            told[layer] = f"its {own} {text} {error:.2g} of their size{others}"
    return told


def _looker(found: dict[str, tuple[float, str]], own: str, original: nn.Module) -> Callable[..., None]:
    def look(module: nn.Module, args: tuple[Any, ...], returned: Any) -> None:
        if type(returned) is not Tensor or not returned.is_floating_point():
            return
        with untracked(), torch.no_grad():
            given = [one for one in args if isinstance(one, Tensor)]
            if not given:
                alike = [(n, p) for n, p in members.named_parameters_of(original) if p.shape == returned.shape]
                if len(alike) != 1:
                    return
                wanted, text = alike[0][1], f"makes {alike[0][0]} of a with other numbers, by"
            elif given[0].shape == returned.shape:
                wanted, text = given[0], "changes the numbers that it is given by"
            else:
                return
            size = float(wanted.double().norm())
            error = float((returned.double() - wanted.double()).norm()) / size if size else 0.0
            if error > found.get(own, (0.0, ""))[0]:
                found[own] = error, text

    return look
