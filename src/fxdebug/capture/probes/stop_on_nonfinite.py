"""Stopping a run where the first NaN or infinity is made that nobody meant."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.data.values import Value
from fxdebug.errors import NonFinite
from fxdebug.operators.categories import (
    OVERWRITES,
    REPLACES_NONFINITE,
    SOFTMAXES,
    TO_PYTHON_NUMBERS,
    VIEWS,
    WRITES,
    is_probability,
    uses_only_shape,
)
from fxdebug.operators.masks import is_mask
from fxdebug.operators.nonfinite import has_nonfinite, nonfinite_counts, summary_of
from fxdebug.operators.nonfinite_cause import (
    INTENDED,
    NAN,
    UNINITIALISED,
    NonFiniteCause,
    find_cause,
    leaves_memory_unwritten,
)
from fxdebug.operators.nonfinite_reasons import PARTLY_UNDEFINED

_ADVICE = (
    "The trace until here is in fxdebug.last_failed(); what went in, what came out and the graph are in it. To see how "
    "far it would spread, run without stop_on_nonfinite and print(trace.check())."
)


# Of these one may first take the result, and then choose with ``where`` where it counts.
_SCALES = frozenset("mul rmul add radd sub rsub div truediv neg multiply".split())


def _put_right(pending: _Culprit, op: str, made: list[Value]) -> bool:
    """Did an operation put something else where the NaN or infinity was, or only ask about it?

    T5 takes the logarithm of distances, rounds it, and chooses with ``where`` whether to use it.
    """
    if any(map(has_nonfinite, made)):
        return False
    asked = op not in TO_PYTHON_NUMBERS and all(
        not value.dtype.startswith(("float", "bfloat", "complex")) for value in made
    )
    return op in REPLACES_NONFINITE or asked or uses_only_shape(op) or pending.kind == UNINITIALISED


def _only_low(value: Value) -> bool:
    """Is what is not finite in it only -Inf, as in a mask that was passed in?"""
    return value.stats is not None and not value.stats.nan and not value.stats.posinf


class _Culprit(NamedTuple):
    """What may have to be told: it is no fault yet (memory that may be filled, a row that may be put right)."""

    kind: str
    what: str
    path: str
    call: str
    op: str
    source: str | None
    given: tuple[Value, ...]
    made: Value


class StopOnNonFinite:
    """A watcher that raises :class:`~fxdebug.errors.NonFinite` where the first unmeant NaN or infinity is made.

    What an operation only passes on is no reason: where its operands have one, that was meant (or would have been
    stopped at). Divisions, logarithms, roots, powers and exponentials, a fully masked softmax, a NaN that is written
    there as a number, and memory that was never written to are told of when the next operation does not put something
    else there.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._frames: list[Frame] = []
        self._meant: set[int] = set()  # numbers of values whose NaNs and infinities are no fault
        self._memory: dict[int, _Culprit | None] = {}  # storage → the same of what is in it
        self._pending: dict[int, _Culprit] = {}  # number of a value → what will be told if it is used
        self._unfilled: set[int] = set()
        self._probabilities: set[int] = set()

    def begins(self, frames: list[Frame]) -> None:
        """A recording begins."""
        self._frames = frames

    # Operations ----------------------------------------------------------------------------------

    def ran(self, body: CallTape, entry: TapeEntry, given: list[Value], result: Any) -> None:
        """Judge one operation; raises ``NonFinite`` if it is to blame."""
        op = _name(entry.what)
        if op in OVERWRITES and str(getattr(entry.what, "__name__", "")).endswith("_"):
            given = given[1:]  # of what was there nothing is left
        if op.startswith(("empty", "new_empty", "resize")):
            self._unfilled.update(value.storage for value in entry.values if value.storage is not None)
        if is_probability(op, given, self._probabilities):
            self._probabilities.update(value.number for value in entry.values)
        made = [*entry.values, *(value for _, value in entry.writes)]
        bad = [value for value in made if has_nonfinite(value)]
        pending = next((found for value in given if (found := self._held(value)) is not None), None)
        if pending is not None and not _put_right(pending, op, made):
            if not bad or not (op in VIEWS or op in WRITES or (op in _SCALES and len(given) == 1)):
                self._stop(pending)
            return self._keep(bad, pending)
        if not bad:
            return None
        outside = [value for value in given if has_nonfinite(value) and not self._is_meant(value)]
        if not all(map(_only_low, outside)):
            if op not in VIEWS:
                self._stop(self._arrived(body, entry, op, outside[0]))
            return None
        literals = _literals(entry)
        verdict = find_cause(op, literals, given, bad, self._probabilities)
        if verdict is None or verdict.kind == INTENDED:
            return self._keep(bad, None)
        culprit = self._culprit(body, entry, op, verdict, given, bad[0])
        if verdict.kind == UNINITIALISED or (
            bad[0].storage in self._unfilled and leaves_memory_unwritten(op, literals, given)
        ):
            return self._keep(bad, culprit._replace(kind=UNINITIALISED))
        written = verdict.kind == NAN and any(map(math.isnan, literals))
        if op in PARTLY_UNDEFINED or written or (op in SOFTMAXES and any(map(has_nonfinite, given))):
            return self._keep(bad, culprit)
        return self._stop(culprit)

    def _keep(self, values: list[Value], culprit: _Culprit | None) -> None:
        for value in values:
            if culprit is None:
                self._meant.add(value.number)
            else:
                self._pending[value.number] = culprit
            if value.storage is not None:
                self._memory[value.storage] = culprit

    def _held(self, value: Value) -> _Culprit | None:
        if not has_nonfinite(value):
            return None
        if value.number in self._pending:
            return self._pending[value.number]
        return None if value.storage is None or value.number in self._meant else self._memory.get(value.storage)

    def _is_meant(self, value: Value) -> bool:
        return value.number in self._meant or (value.storage is not None and value.storage in self._memory)

    def _culprit(
        self, body: CallTape, entry: TapeEntry, op: str, verdict: NonFiniteCause, given: list[Value], made: Value
    ) -> _Culprit:
        frame = self._frames[body.index]
        source = None if entry.line is None else entry.line.text()
        call = f"{frame.site.path or frame.site.type}#{frame.number}"
        what = f"{verdict.why}: {nonfinite_counts(made.stats)} elements"
        return _Culprit(verdict.kind, what, frame.site.path, call, op, source, tuple(given), made)

    def _arrived(self, body: CallTape, entry: TapeEntry, op: str, value: Value) -> _Culprit:
        """An operand that was not finite before any operation was seen."""
        root = self._frames[0]
        if value.name is not None:
            verdict = NonFiniteCause("weight", f"the weight {value.name} is not finite")
        elif any(value.number == other.number for other in root.inputs):
            slot = next(slot for slot, other in root.inputs.named() if other.number == value.number)
            verdict = NonFiniteCause("input", f"the input {slot} is not finite")
        else:
            verdict = NonFiniteCause(
                "input", "it was given a tensor from outside the recorded operations that is not finite"
            )
        return self._culprit(body, entry, op, verdict, [value], value)

    # Calls ---------------------------------------------------------------------------------------

    def left(self, frame: Frame, output: Any) -> None:
        """Judge a call whose operations were not seen; raises ``NonFinite`` if it is to blame."""
        bad = [value for value in frame.outputs or () if has_nonfinite(value)]
        if not bad:
            return
        held = next((found for value in bad if (found := self._held(value)) is not None), None)
        if held is not None and (frame.parent is None or held.op in PARTLY_UNDEFINED):
            self._stop(held)
        unknown = [value for value in bad if not self._is_meant(value) and self._held(value) is None]
        if not unknown:
            return
        given = [value for value in frame.inputs if has_nonfinite(value) and not self._is_meant(value)]
        if all(map(is_mask, unknown)):
            return self._keep(unknown, None)
        site, source = frame.site, None if frame.line is None else frame.line.text()
        call = f"{site.path or site.type}#{frame.number}"
        kind = "nan" if any(value.stats.nan for value in unknown if value.stats) else "inf"
        if given and not all(map(is_mask, given)):
            numbers = {value.number for value in self._frames[0].inputs}
            whose = "the input of the run"
            if frame.parent is not None and given[0].number not in numbers:
                whose = f"the code of {_called(frame.parent)}"
            what = f"it was given {nonfinite_counts(given[0].stats)}: that comes from {whose}"
            kind = "input"
        else:
            verdict = find_cause(site.type, (), list(frame.inputs), unknown)
            why = "" if verdict is None or "finite numbers" in verdict.why else f": {verdict.why}"
            what = f"it was given finite numbers and returned {nonfinite_counts(unknown[0].stats)}{why}"
        self._stop(_Culprit(kind, what, site.path, call, site.type, source, tuple(frame.inputs), unknown[0]))

    # Telling -------------------------------------------------------------------------------------

    def _stop(self, found: _Culprit) -> None:
        where = f" ({found.source})" if found.source else ""
        lines = [f"{found.op} in {found.call}{where}: {found.what}"]
        lines += [f"  given {summary_of(value)}" for value in found.given[:4]]
        lines += [f"  made {summary_of(found.made)}", _ADVICE]
        error = NonFinite("\n".join(lines))
        error.kind, error.path, error.call, error.op, error.source = found[0], *found[2:6]
        self.error = error
        raise error


def _called(frame: Frame) -> str:
    return frame.site.path or frame.site.type


def _name(what: Any) -> str:
    """An operation's name, as the graphs have it."""
    name = str(getattr(what, "__name__", type(what).__name__))
    if name in ("__get__", "__set__"):
        return str(getattr(getattr(what, "__self__", None), "__name__", name))
    return name.strip("_")


def _literals(entry: TapeEntry) -> list[float]:
    found: list[float] = []
    pending: list[Any] = [*entry.args, *entry.kwargs.values()]
    while pending:
        thing = pending.pop()
        if type(thing) in (list, tuple):
            pending.extend(thing[:1000])
        elif type(thing) is dict:
            pending.extend(thing.values())
        elif type(thing) is float or (type(thing) is int and thing.bit_length() < 1000):
            found.append(thing)
    return found
