"""Lookups and slices that begin some rows earlier or later: an offset, a special row, one too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.repair.candidates.variations.variation import NEEDED, Variation, with_operand
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import NoEdit, tensors_of

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
    """Yield a slice at another place: of one dimension, or of all that are cut, as a crop cuts them alike."""
    cut = _cut(tensor, index)
    groups = [(dim,) for dim in cut] + ([tuple(cut)] if len(cut) > 1 else [])
    known: set[object] = set()
    begins: list[Callable[[int, int], int]] = [*(partial(_moved, by) for by in SHIFTS), _at_other_end, _in_the_middle]
    for begin in begins:
        for dims in groups:
            try:
                new = {dim: _begun(cut[dim], tensor.shape[dim], begin) for dim in dims}
            except NoEdit:
                continue
            texts = [[f"{each[dim].start}:{each[dim].stop}" for dim in dims] for each in (cut, new)]
            if texts[0] == texts[1] or (dims, *texts[1]) in known:
                continue
            known.add((dims, *texts[1]))
            own, needed = (", ".join(dict.fromkeys(each)) for each in texts)
            of = f"dimension{'s' * (len(dims) > 1)} {' and '.join(map(str, dims))}"
            change = partial(_with_begins, dims, begin)
            yield Variation(f"{own} of {of}{NEEDED}{needed}", f"{{op}} of {needed}", change)


def _at_other_end(start: int, room: int) -> int:
    return room - start


def _in_the_middle(start: int, room: int) -> int:
    return room // 2


def _items(tensor: Tensor, index: Any) -> list[Any]:
    """Return an index with one item for each dimension that it names; empty where it has other than slices."""
    items = list(index) if isinstance(index, tuple) else [index]
    at = [number for number, item in enumerate(items) if item is Ellipsis]
    if len(at) > 1 or not all(item is Ellipsis or type(item) in (slice, int) for item in items):
        return []
    if at:
        items[at[0] : at[0] + 1] = [slice(None)] * (tensor.ndim - len(items) + 1)
    return items


def _cut(tensor: Tensor, index: Any) -> dict[int, slice]:
    """Return the slices of dimensions that leave something out."""
    known = [(dim, item) for dim, item in enumerate(_items(tensor, index)) if type(item) is slice]
    cut = {dim: slice(*item.indices(tensor.shape[dim])) for dim, item in known if item.step in (None, 1)}
    return {dim: item for dim, item in cut.items() if 0 < item.stop - item.start < tensor.shape[dim]}


def _begun(item: slice, size: int, begin: Callable[[int, int], int]) -> slice:
    """Return a slice of as many elements that begins elsewhere, by where it begins and how much it leaves out."""
    start = begin(item.start, size - (item.stop - item.start))
    stop = start + item.stop - item.start
    if start < 0 or stop > size:
        raise NoEdit
    return slice(start, stop)


def _with_begins(dims: Sequence[int], begin: Callable[[int, int], int], again: Ran) -> Any:
    tensor, cut = again.args[0], _cut(*again.args)
    items = _items(*again.args)
    for dim in dims:
        if dim not in cut:
            return again.result  # in another layer nothing is left out
        items[dim] = _begun(cut[dim], tensor.shape[dim], begin)
    return again.function(tensor, tuple(items))


def _signed(by: int) -> str:
    return f"{'+' if by > 0 else '-'} {abs(by)}"


def _moved(by: int, number: Any, room: int = 0) -> Any:
    return number + by


def _added(by: int, ran: Ran) -> Any:
    return ran.result + by


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
