"""The values of a that b has not, whatever was paired with what: an edit behind which b has one of them is progress."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fxdebug.comparison.tolerance import tolerance_of
from fxdebug.repair.rerun.replaced_operations import tensors_in
from fxdebug.repair.rerun.replayed_run import KeptOperations

LEAST = 8  # elements: fewer may agree by chance
LOOSE = 4  # times the rounding of one operation: of several, one after the other


@dataclass(frozen=True)
class _Known:
    """A tensor, its mean, and the root of its mean square: these do not depend on the order of its elements."""

    tensor: Tensor
    mean: float
    size: float

    def is_alike(self, other: _Known, tolerance: float) -> bool:
        """May both have the same elements, in whatever order?"""
        least = tolerance * self.size
        return abs(self.size - other.size) <= least and abs(self.mean - other.mean) <= least


class LostValues:
    """Looks up tensors among the values of a that b has not. Elements in another order are no other value.

    >>> from fxdebug.repair.rerun.replaced_operations import Ran, tensors_in
    >>> x = torch.arange(8.0)
    >>> a, b = KeptOperations(), KeptOperations()
    >>> a.keep((0, "mul"), Ran(torch.mul, (x, x), {}, x * x))
    >>> b.keep((0, "neg"), Ran(torch.neg, (x,), {}, -x))
    >>> lost = LostValues(a, b)
    >>> lost.has(x * x), lost.has(x)
    (True, False)
    """

    def __init__(self, a: KeptOperations, b: KeptOperations) -> None:
        known: dict[int, list[_Known]] = {}
        for each in _values(b):
            known.setdefault(each.tensor.numel(), []).append(each)
        self._lost: dict[int, list[_Known]] = {}
        for each in _values(a):
            size, tolerance = each.tensor.numel(), _tolerance(each.tensor)
            if not any(each.is_alike(other, tolerance) for other in known.get(size, ())):
                self._lost.setdefault(size, []).append(each)

    def has(self, tensor: Tensor) -> bool:
        """Is it one of them?"""
        lost = self._lost.get(tensor.numel(), ())
        value = _known(tensor) if lost else None
        if value is None:
            return False
        tolerance = _tolerance(tensor)
        return any(other.is_alike(value, tolerance) and _is_equal(other, value, tolerance) for other in lost)


def _values(kept: KeptOperations) -> Iterator[_Known]:
    seen: set[int] = set()
    for _, ran in kept.operations:
        for tensor in tensors_in(ran.result):
            value = None if id(tensor) in seen else _known(tensor)
            seen.add(id(tensor))
            if value is not None:
                yield value


def _known(tensor: Tensor) -> _Known | None:
    """Return what is known of a tensor; ``None`` for one that says nothing: of few elements, or all alike."""
    if tensor.numel() < LEAST or not tensor.is_floating_point() or tensor.layout != torch.strided:
        return None
    with torch.no_grad():
        wide = tensor.detach().double()
        mean, square = wide.mean().item(), wide.square().mean().item()
    spread = square - mean * mean
    return _Known(tensor.detach(), mean, square**0.5) if 1e-9 * square < spread < float("inf") else None


def _tolerance(tensor: Tensor) -> float:
    return LOOSE * tolerance_of(str(tensor.dtype)[6:])


def _is_equal(one: _Known, other: _Known, tolerance: float) -> bool:
    with torch.no_grad():
        flat, wanted = other.tensor.reshape(-1), one.tensor.reshape(-1).to(other.tensor.dtype)
        return bool(torch.allclose(flat, wanted, rtol=tolerance, atol=tolerance * one.size))
