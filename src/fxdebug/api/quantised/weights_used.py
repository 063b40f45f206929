"""The weights that a quantised model computes with: what its products are given, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import MeasuringMode, members, untracked

# by the name of a product, where it takes its weight
TURNED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # weights with the channels given first
WEIGHT_AT = {
    **dict.fromkeys(("linear", "matmul", "mm", "conv1d", "conv2d", "conv3d", "embedding", *TURNED), 1),
    "addmm": 2,
}
FITTED = 1e-3  # of what a layer returns, that a factor and a shift of each channel may leave of its product
FEWEST = 3  # numbers of a channel from which both are known


def weights_used(model: nn.Module, originals: Mapping[str, nn.Module], run: Callable[[], object]) -> dict[str, Tensor]:
    """Run a quantised model and return the weights that its products take, by the path of their layer.

    ``originals`` are the layers of the original by their paths in ``model``. Each weight is a copy in the shape of
    the original's ``weight``; where a product takes it transposed, it is turned, and of several that of the same
    numbers as the original's is taken. What has no such weight, as packed ones in a compiled kernel, is left out. Whole
    numbers are codes, which are multiplied by their scales behind the product: these are found from what the layer
    returns, and codes without them are left out.
    """
    wanted = {path: weight for path, one in originals.items() if isinstance(weight := _weight(one), Tensor)}
    running: list[str] = []
    found: dict[str, Tensor] = {}
    codes: dict[str, _Codes] = {}
    handles = []
    for path, module in members.named_modules_of(model):
        if path in wanted:
            handles.append(module.register_forward_pre_hook(_entering(running, path)))
            handles.append(module.register_forward_hook(_leaving(running, codes, found), always_call=True))
    try:
        with _Products(running, wanted, found, codes):
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


def _leaving(running: list[str], codes: dict[str, _Codes], found: dict[str, Tensor]) -> Callable[..., None]:
    def leave(module: nn.Module, args: Any, returned: Any) -> None:
        path = running.pop()
        of_product = codes.pop(path, None)
        if of_product is not None and isinstance(returned, Tensor) and path not in found:
            with untracked(), torch.no_grad():
                scaled = of_product.scaled(returned.detach())
                if scaled is not None:
                    found[path] = scaled

    return leave


@dataclass(frozen=True)
class _Codes:
    """A weight in whole numbers, and what its product returned; ``at`` and ``to`` are their dimensions of channels."""

    weight: Tensor
    product: Tensor
    at: int
    to: int

    def scaled(self, returned: Tensor) -> Tensor | None:
        """Return the codes times the factor of each channel by which the product becomes what the layer returned."""
        if returned.shape != self.product.shape or self.product.shape[self.to] != self.weight.shape[self.at]:
            return None
        one, other = (x.double().movedim(self.to, 0).reshape(x.shape[self.to], -1) for x in (self.product, returned))
        if one.shape[1] < FEWEST:
            return None
        centred, theirs = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
        factor = (centred * theirs).sum(1) / centred.square().sum(1)
        left = (theirs - centred * factor[:, None]).norm()
        if not bool(factor.isfinite().all()) or not float(left) <= FITTED * float(theirs.norm()):
            return None
        shape = [1] * self.weight.ndim
        shape[self.at] = -1
        return self.weight.double() * factor.view(shape)


class _Products(MeasuringMode):
    """Keeps the weights that products are given, by the layer that runs."""

    def __init__(
        self, running: list[str], wanted: Mapping[str, Tensor], found: dict[str, Tensor], codes: dict[str, _Codes]
    ) -> None:
        super().__init__(lambda: running[-1] if running else "")
        self._running, self._wanted, self._found, self._codes = running, wanted, found, codes

    def after_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any) -> None:
        name = self.name_of(func)
        at = WEIGHT_AT.get(name)
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
            if alike and _are_codes(weight) and not _are_codes(original):
                weight = weight.mT if name in ("matmul", "mm", "addmm") else weight
                if isinstance(result, Tensor) and name != "embedding" and weight.shape == original.shape:
                    to = 1 if name.startswith("conv") and result.ndim == weight.ndim else -1
                    self._codes[path] = _Codes(weight.clone(), result.detach().clone(), int(name in TURNED), to)
                return
            if path in self._found:
                alike.append(self._found[path])
            if alike:
                self._found[path] = min(alike, key=lambda one: _distance(one, original)).clone()


def _are_codes(weight: Tensor) -> bool:
    """Are these whole numbers, and not all one of them? They are codes, whose scales stand elsewhere."""
    return bool((weight == weight.round()).all()) and bool((weight != weight.flatten()[:1]).any())


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double().to(one.device)).norm())
