"""Try the causes that a comparison of live models names: with this one edit, does b return what a returns?

An edit computes one operation of b anew, with what the finding says is wrong taken from the operation of a: its
settings, its weights, or neither where the operation is one too many. A cause whose edit repairs b is proven. One whose
edit does not, where it is the only finding, is told as likely.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn

from fxdebug.capture.pausing.replaced_operations import Place, Ran, ReplacedOperations
from fxdebug.comparison.diagnosis.weights.folded_norm import FOLDED
from fxdebug.comparison.result import ComparisonData, Row, Side

MOST = 8  # findings that are tried
LIKELY = "likely"
Edit: TypeAlias = Callable[[Ran], Any]
Run: TypeAlias = Callable[[ReplacedOperations], ComparisonData | None]
"""Runs a model with operations replaced, and returns the comparison with a's plain run; ``None`` where it raised."""


See: TypeAlias = Callable[[ReplacedOperations], None]
"""Runs a model with a look at some operations."""


class NoEdit(Exception):
    """An operation cannot be computed anew as the finding says."""


def tried(findings: Sequence[Row], plain: ComparisonData, see_a: See, run_b: Run, budget: float) -> list[Row]:
    """Return the findings with what became of their edits.

    ``see_a`` runs model a once more, ``run_b`` model b; no run begins after ``budget`` seconds. Nothing is tried where
    the plain runs return the same to the last bit. Where they do within tolerance, a repair must make it so to the
    last bit.
    """
    until = time.monotonic() + budget
    rows = list(findings)
    # the weights of a are none for a convolution with a norm folded in
    known = [row.kind in _EDITS and FOLDED not in row.because for row in rows[:MOST]]
    places = {number: place_of(rows[number].b) for number, is_known in enumerate(known) if is_known}
    planned = {number: place for number, place in places.items() if place is not None}
    # what rounding explains is no proof where only the last bits differ
    exactly = returns_the_same(plain)
    if not planned or (exactly and returns_the_same(plain, exactly=True)):
        return rows
    edits = _edits(rows, planned, see_a)
    for number, of_row in edits.items():
        failed = []
        for edit in of_row:
            if time.monotonic() > until:
                return rows
            repaired = _repairs({planned[number]: edit.make}, run_b, exactly)
            if repaired:
                told = f"{edit.words}: with this edit b returns what a returns"
                rows[number] = replace(rows[number], proven=True, repair=told)
                return rows
            failed += [edit.words] if repaired is False and edit.is_cause else []
        if failed and len(rows) == 1:
            told = f"{LIKELY}: {failed[0]} was tried, and b still returns something else"
            rows[number] = replace(rows[number], repair=told)
    first = {number: of_row[0] for number, of_row in edits.items() if of_row}
    whole = 1 < len(first) == len(rows) and time.monotonic() <= until
    if whole and _repairs({planned[number]: edit.make for number, edit in first.items()}, run_b, exactly):
        more = f"with this and {len(rows) - 1} more edit{'s' * (len(rows) > 2)} b returns what a returns"
        return [replace(row, proven=True, repair=f"{first[at].words}: {more}") for at, row in enumerate(rows)]
    return rows


def _edits(rows: Sequence[Row], planned: dict[int, Place], see_a: See) -> dict[int, list[Candidate]]:
    """Return the edits of each finding that has some, from the operations of a."""
    seen: dict[Place, Ran] = {}
    wanted = {place: number for number in planned if (place := place_of(rows[number].a)) is not None}

    def keep(place: Place) -> Edit:
        def kept(ran: Ran) -> Any:
            seen[place] = ran
            return ran.result

        return kept

    see_a(ReplacedOperations({place: keep(place) for place in wanted}))
    edits: dict[int, list[Candidate]] = {}
    for number in planned:
        row, at = rows[number], place_of(rows[number].a)
        theirs = None if at is None else seen.get(at)
        edits[number] = [
            Candidate(words.format(a=_op(row.a), b=_op(row.b)), partial(make, theirs), make in _UNDOING)
            for words, make in _EDITS[row.kind or ""]
            if not (
                make is _with_operation and row.kind == "missing" and row.op != _op(row.a)
            )  # a larger one that has it
        ]
    return edits


def _is_within(row: Row) -> bool:
    """Is the missing operation but one of those that an operation of a is made of? To put that in proves too little."""
    return row.kind == "missing" and row.op != _op(row.a)


def _repairs(edits: dict[Place, Edit], run_b: Run, exactly: bool) -> bool | None:
    """Does b with these edits return what a returns? ``None`` where an edit could not be made."""
    failed: list[Exception] = []

    def guarded(edit: Edit) -> Edit:
        def changed(ran: Ran) -> Any:
            try:
                return edit(ran)
            except Exception as error:
                failed.append(error)
                return ran.result

        return changed

    stepper = ReplacedOperations({place: guarded(edit) for place, edit in edits.items()})
    found = run_b(stepper)
    if failed or found is None or stepper.made != edits.keys():
        return None
    return returns_the_same(found, exactly=exactly)


def returns_the_same(comparison: ComparisonData, *, exactly: bool = False) -> bool:
    """Do both models return the same, within tolerance or to the last bit?"""
    rows = [row for row in comparison.outputs if row.measured]
    return bool(rows) and all(row.error == 0.0 if exactly else row.verdict == "equal" for row in rows)


def _op(side: Side | None) -> str:
    return (side.op if side is not None else "") or ""


def place_of(side: Side | None) -> Place | None:
    """Return where the operation of a side is; ``None`` for a call."""
    return None if side is None or not side.node or side.op is None else (side.call.index, side.node.rpartition("/")[2])


# Edits -------------------------------------------------------------------------------------------


def _same_operation(theirs: Ran | None, ours: Ran) -> Ran:
    """Return the operation of a, where it is the same as that of b, with as many arguments; else raise ``NoEdit``."""
    if theirs is None or _is_inplace_of(ours) or _name(ours) != _name(theirs) or len(ours.args) != len(theirs.args):
        raise NoEdit
    return theirs


def _with_settings(theirs: Ran | None, ours: Ran) -> Any:
    """Compute an operation with the arguments of a that are no tensors."""
    theirs = _same_operation(theirs, ours)
    args = [x if _has_tensors(x) or _has_tensors(y) else y for x, y in zip(ours.args, theirs.args)]
    kwargs = {name: x for name, x in ours.kwargs.items() if _has_tensors(x)}
    kwargs |= {name: y for name, y in theirs.kwargs.items() if not _has_tensors(y) and name not in kwargs}
    return ours.function(*args, **kwargs)


def _with_weights(theirs: Ran | None, ours: Ran) -> Any:
    """Compute an operation with the parameters of a."""
    theirs = _same_operation(theirs, ours)
    changed: list[Tensor] = []

    def chosen(x: Any, y: Any) -> Any:
        if isinstance(x, nn.Parameter) and isinstance(y, nn.Parameter) and x.shape == y.shape:
            changed.append(x)
            return y.to(x.dtype)
        return x

    args = [chosen(x, y) for x, y in zip(ours.args, theirs.args)]
    kwargs = {name: chosen(x, theirs.kwargs.get(name)) for name, x in ours.kwargs.items()}
    if not changed:
        raise NoEdit
    return ours.function(*args, **kwargs)


def _with_operation(theirs: Ran | None, ours: Ran) -> Any:
    """Compute another function of the same tensors, with a's settings and weights."""
    if theirs is None or _is_inplace_of(ours) or _is_inplace_of(theirs) or theirs.kwargs.keys() & {"out"}:
        raise NoEdit
    given = [x for x in (*ours.args, *ours.kwargs.values()) if _is_data(x)]
    wanted = [x for x in (*theirs.args, *theirs.kwargs.values()) if _is_data(x)]
    if len(given) != len(wanted) or any(x.shape != y.shape for x, y in zip(given, wanted)):
        raise NoEdit
    left = iter(given)
    args = [next(left) if _is_data(x) else x for x in theirs.args]
    return theirs.function(*args, **{name: next(left) if _is_data(x) else x for name, x in theirs.kwargs.items()})


def _left_out(theirs: Ran | None, ours: Ran) -> Any:
    """Return the first tensor that an operation was given, where it has the shape of the result."""
    given = next((x for x in ours.args if isinstance(x, Tensor)), None)
    if _is_inplace_of(ours) or given is None or not isinstance(ours.result, Tensor) or given.shape != ours.result.shape:
        raise NoEdit
    return given


def _before(slot: int, theirs: Ran | None, ours: Ran) -> Any:
    """Compute an operation with one of its tensors replaced by what an operation of a makes of it."""
    if theirs is None or _is_inplace_of(ours) or _is_inplace_of(theirs) or slot >= len(ours.args):
        raise NoEdit
    given = ours.args[slot]
    data = [x for x in (*theirs.args, *theirs.kwargs.values()) if _is_data(x)]
    if not isinstance(given, Tensor) or len(data) != 1 or data[0].shape != given.shape:
        raise NoEdit
    made = theirs.function(
        *[given if _is_data(x) else x for x in theirs.args],
        **{name: given if _is_data(x) else x for name, x in theirs.kwargs.items()},
    )
    if not isinstance(made, Tensor) or made.shape != given.shape:
        raise NoEdit
    return ours.function(*[made if at == slot else x for at, x in enumerate(ours.args)], **ours.kwargs)


class Candidate(NamedTuple):
    """An edit in words, and the function that computes the operation of b anew; does it undo what the finding says?"""

    words: str
    make: Edit
    is_cause: bool


_UNDOING = (_with_settings, _with_weights, _left_out)
_REPLACED = ("{a} of a in the place of {b}", _with_operation)
_EDITS: dict[str, list[tuple[str, Callable[[Ran | None, Ran], Any]]]] = {
    "constant": [("{b} with the settings of a", _with_settings), _REPLACED],
    "weights": [("{b} with the weights of a", _with_weights)],
    "extra": [_REPLACED, ("{b} left out", _left_out)],
    "dtype": [("{b} left out", _left_out)],
    "missing": [
        _REPLACED,
        *[("{a} of a before {b}", cast(Callable[[Ran | None, Ran], Any], partial(_before, slot))) for slot in range(3)],
    ],
    "values": [_REPLACED],
}


def _name(ran: Ran) -> str:
    return str(getattr(ran.function, "__name__", ""))


def _is_data(thing: Any) -> bool:
    return isinstance(thing, Tensor) and not isinstance(thing, nn.Parameter)


def _is_inplace_of(ran: Ran) -> bool:
    """Does an operation write to what it is given? Then it cannot be computed a second time."""
    return any(ran.result is x for x in ran.args) or (_name(ran).endswith("_") and not _name(ran).endswith("__"))


def _has_tensors(thing: Any) -> bool:
    return any(True for _ in _tensors(thing))


def _tensors(thing: Any) -> Iterator[torch.Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _tensors(one)
