"""The weights that a quantised model computes with: what its products are given, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import MeasuringMode, members, untracked

# by the name of a product, where it takes its weight
WEIGHT_AT = {
    **dict.fromkeys(("linear", "matmul", "mm", "conv1d", "conv2d", "conv3d", "embedding"), 1),
    "addmm": 2,
}


def weights_used(model: nn.Module, originals: Mapping[str, nn.Module], run: Callable[[], object]) -> dict[str, Tensor]:
    """Run a quantised model and return the weights that its products take, by the path of their layer.

    ``originals`` are the layers of the original by their paths in ``model``. Each weight is a copy in the shape of
    the original's ``weight``; where a product takes it transposed, it is turned, and of several that of the same
    numbers as the original's is taken. What has no such weight, as packed ones in a compiled kernel, is left out.
    """
    wanted = {path: weight for path, one in originals.items() if isinstance(weight := _weight(one), Tensor)}
    running: list[str] = []
    found: dict[str, Tensor] = {}
    handles = []
    for path, module in members.named_modules_of(model):
        if path in wanted:
            handles.append(module.register_forward_pre_hook(_entering(running, path)))
            handles.append(module.register_forward_hook(_leaving(running), always_call=True))
    try:
        with _Products(running, wanted, found):
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _weight(layer: nn.Module) -> Tensor | None:
    return next((p for name, p in members.named_parameters_of(layer) if name == "weight" and p.ndim > 1), None)


def _entering(running: list[str], path: str) -> Callable[..., None]:
    def enter(module: nn.Module, args: Any) -> None:
        running.append(path)

    return enter


def _leaving(running: list[str]) -> Callable[..., None]:
    def leave(module: nn.Module, args: Any, returned: Any) -> None:
        running.pop()

    return leave


class _Products(MeasuringMode):
    """Keeps the weights that products are given, by the layer that runs."""

    def __init__(self, running: list[str], wanted: Mapping[str, Tensor], found: dict[str, Tensor]) -> None:
        super().__init__(lambda: running[-1] if running else "")
        self._running, self._wanted, self._found = running, wanted, found

    def after_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any) -> None:
        at = WEIGHT_AT.get(self.name_of(func))
        if at is None or not self._running:
            return
        path = self._running[-1]
        given = kwargs.get("weight", args[at] if len(args) > at else None)
        original = self._wanted[path].detach()
        if not isinstance(given, Tensor) or type(given) not in (Tensor, nn.Parameter) or not given.is_floating_point():
            return
        with untracked(), torch.no_grad():
            weight = given.detach()
            alike = [one for one in (weight, weight.mT) if one.ndim == original.ndim and one.shape == original.shape]
            if path in self._found:
                alike.append(self._found[path])
            if alike:
                self._found[path] = min(alike, key=lambda one: _distance(one, original)).clone()


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double().to(one.device)).norm())
