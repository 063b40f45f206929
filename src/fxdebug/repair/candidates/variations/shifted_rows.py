"""Lookups and slices that begin some rows earlier or later: an offset, a special row, one too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.repair.candidates.variations.variation import NEEDED, Variation, with_operand
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import tensors_of

_POSITIONS = frozenset(["arange", "cumsum"])
SHIFTS = (1, -1, 2, -2)  # rows: one too many or too few, or two special ones


def shifted(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield a lookup or a slice that begins some rows earlier or later."""
    if name in _POSITIONS and isinstance(ran.result, Tensor) and not _is_float(ran.result):
        for by in SHIFTS:
            told = f"the positions of {{op}} are {abs(by)} {'less' if by > 0 else 'more'} than those of a"
            yield Variation(told, f"{{op}} {_signed(by)}", partial(_added, by))
    elif name == "getitem" and len(ran.args) == 2 and isinstance(ran.args[0], Tensor):
        yield from _shifted_slices(*ran.args)
    elif name in ("embedding", "index_select") and sum(not _is_float(each) for each in tensors_of(ran)) == 1:
        at = next(at for at, each in enumerate(tensors_of(ran)) if not _is_float(each))
        for by in SHIFTS:
            told = f"{{op}} takes rows that are {abs(by)} {'before' if by > 0 else 'behind'} those of a"
            yield Variation(
                told, f"{{op}} of the indices {_signed(by)}", partial(with_operand, at, partial(_moved, by))
            )


def _shifted_slices(tensor: Tensor, index: Any) -> Iterator[Variation]:
    items = index if isinstance(index, tuple) else (index,)
    if any(item is Ellipsis or item is None or isinstance(item, Tensor) for item in items):
        return
    for dim, item in enumerate(items):
        if not isinstance(item, slice) or item.step not in (None, 1):
            continue
        start, stop, _ = item.indices(tensor.shape[dim])
        for by in SHIFTS:
            if start + by < 0 or stop + by > tensor.shape[dim] or stop <= start:
                continue

            def change(again: Ran, dim: int = dim, start: int = start + by, stop: int = stop + by) -> Any:
                given = again.args[1] if isinstance(again.args[1], tuple) else (again.args[1],)
                return again.function(again.args[0], (*given[:dim], slice(start, stop), *given[dim + 1 :]))

            told = f"{start}:{stop} of dimension {dim}{NEEDED}{start + by}:{stop + by}"
            yield Variation(told, f"{{op}} of {start + by}:{stop + by}", change)


def _signed(by: int) -> str:
    return f"{'+' if by > 0 else '-'} {abs(by)}"


def _moved(by: int, indices: Tensor) -> Tensor:
    return indices + by


def _added(by: int, ran: Ran) -> Any:
    return ran.result + by


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
