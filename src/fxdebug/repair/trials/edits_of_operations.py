"""Edits of one operation of b: computed anew as the operation of a, with its settings or its weights, or left out.

Each function is given both operations as they ran, and returns the result that b gets in the place of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from torch import Tensor, nn

from fxdebug.capture.torch_state import internals
from fxdebug.comparison.result import Row, Side
from fxdebug.repair.rerun.replaced_operations import Place, Ran, is_inplace, name_of, tensors_in

Edit: TypeAlias = Callable[[Ran], Any]
EditOfBoth: TypeAlias = Callable[[Ran | None, Ran], Any]
"""Computes an operation of b from that of a, where it is known, and from itself."""


# Kernels that trust what they are given: with other shapes, or more layers than weights, they write beyond memory.
UNCHECKED = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu", "as_strided", "embedding_bag", "ctc_loss", "set"])


class NoEdit(Exception):
    """An operation cannot be computed anew as a finding says."""


def edits_of(row: Row) -> Iterator[tuple[str, EditOfBoth, bool]]:
    """Yield the edits of a finding's operation in words, and whether each undoes what the finding says."""
    for words, make in _EDITS.get(row.kind or "", ()):
        if make is _with_operation and row.kind == "missing" and row.op != op_of(row.a):
            continue  # a larger operation has the missing one: to put that in proves too little
        if make is _with_operation and row.kind == "constant":
            make = _with_operation_of_as_many_weights
        yield words.format(a=op_of(row.a), b=op_of(row.b)), make, make in _UNDOING


def op_of(side: Side | None) -> str:
    """Return the operation of a side; empty for a call."""
    return (side.op if side is not None else "") or ""


def place_of(side: Side | None) -> Place | None:
    """Return where the operation of a side is; ``None`` for a call."""
    return None if side is None or not side.node or side.op is None else (side.call.index, side.node.rpartition("/")[2])


def _same_operation(theirs: Ran | None, ours: Ran) -> Ran:
    """Return the operation of a, where it is the same as that of b, with as many arguments; else raise ``NoEdit``."""
    if theirs is None or is_inplace(ours) or name_of(ours) != name_of(theirs) or len(ours.args) != len(theirs.args):
        raise NoEdit
    if name_of(ours) in UNCHECKED and [x.shape for x in tensors_of(ours)] != [x.shape for x in tensors_of(theirs)]:
        raise NoEdit
    return theirs


def with_settings(theirs: Ran | None, ours: Ran) -> Any:
    """Compute an operation with the arguments of a that are no tensors."""
    theirs = _same_operation(theirs, ours)
    args = [x if tensors_in(x) or tensors_in(y) else y for x, y in zip(ours.args, theirs.args)]
    kwargs = {name: x for name, x in ours.kwargs.items() if tensors_in(x)}
    kwargs |= {name: y for name, y in theirs.kwargs.items() if not tensors_in(y) and name not in kwargs}
    return ours.function(*args, **kwargs)


def _with_operation(theirs: Ran | None, ours: Ran) -> Any:
    """Compute another function of the same tensors, with a's settings and weights."""
    if theirs is None or is_inplace(ours) or is_inplace(theirs) or theirs.kwargs.keys() & {"out"}:
        raise NoEdit
    given, wanted = (dict(enumerate(tensors_of(ran))) for ran in (ours, theirs))
    slots = [[at for at, x in known.items() if _is_data(x)] for known in (given, wanted)]
    sides = [(given[own], wanted[other]) for own, other in zip(*slots)]
    if len({*map(len, slots)}) > 1 or any(x.shape != y.shape for x, y in sides):
        raise NoEdit
    return computed_with(theirs, {other: given[own] for own, other in zip(*slots)})


def _with_operation_of_as_many_weights(theirs: Ran | None, ours: Ran) -> Any:
    """Compute another function of the same tensors, where both have as many weights: a bias is no setting."""
    counts = [sum(not _is_data(x) for x in tensors_of(ran)) for ran in (theirs, ours) if ran is not None]
    if len({*counts}) > 1:
        raise NoEdit
    return _with_operation(theirs, ours)


def _left_out(theirs: Ran | None, ours: Ran) -> Any:
    """Return the first tensor that an operation was given, where it has the shape of what is returned first."""
    given = next((x for x in ours.args if isinstance(x, Tensor)), None)
    several = ours.result if isinstance(ours.result, tuple) else ()
    made = several[0] if several else ours.result
    if is_inplace(ours) or given is None or not isinstance(made, Tensor) or given.shape != made.shape:
        raise NoEdit
    return type(several)([given, *several[1:]]) if several else given


_UNDOING = (with_settings, _left_out)
IN_ITS_PLACE = " of a in the place of "
OF_REGION = f"{IN_ITS_PLACE}all that makes "
_REPLACED: tuple[str, EditOfBoth] = (f"{{a}}{IN_ITS_PLACE}{{b}}", _with_operation)
_EDITS: dict[str, list[tuple[str, EditOfBoth]]] = {
    "constant": [("{b} with the settings of a", with_settings), _REPLACED],
    "extra": [_REPLACED, ("{b} left out", _left_out)],
    "shape": [("{b} with the settings of a", with_settings)],
    "dtype": [("{b} left out", _left_out)],
    "missing": [_REPLACED],
    "values": [_REPLACED],
}


def _is_data(thing: Any) -> bool:
    return isinstance(thing, Tensor) and not isinstance(thing, nn.Parameter)


def tensors_of(ran: Ran) -> list[Tensor]:
    """Return the tensors that an operation was given, those in lists, too."""
    return tensors_in((ran.args, dict(ran.kwargs)))


def computed_with(ran: Ran, new: Mapping[int, Tensor]) -> Any:
    """Compute an operation with some of its tensors, counted from 0, replaced by others."""
    if name_of(ran) in UNCHECKED:
        own = tensors_of(ran)
        if any(at >= len(own) or tensor.shape != own[at].shape for at, tensor in new.items()):
            raise NoEdit
    counted = itertools.count()
    args, kwargs = internals.tree_map(
        lambda leaf: new.get(next(counted), leaf) if isinstance(leaf, Tensor) else leaf, (ran.args, dict(ran.kwargs))
    )
    return ran.function(*args, **kwargs)
