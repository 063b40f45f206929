"""A probe that stops a run at the operation that makes the first unintended NaN or infinity."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import op_name
from fxdebug.data.values import Value
from fxdebug.errors import NonFinite
from fxdebug.operators.categories import (
    OVERWRITES,
    REPLACES_NONFINITE,
    SOFTMAXES,
    TO_PYTHON_NUMBERS,
    VIEWS,
    WRITES,
    is_from_ranks,
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


# Scaling operations: a model may scale a NaN or infinity first and choose with ``where`` afterwards whether it counts.
_SCALES = frozenset("mul rmul add radd sub rsub div truediv neg multiply".split())


def _is_replaced(pending: _Culprit, op: str, results: list[Value]) -> bool:
    """Did an operation replace the NaN or infinity by something else, or only ask about it?

    T5 takes the logarithm of distances, rounds it, and chooses with ``where`` whether to use it.
    """
    if any(map(has_nonfinite, results)):
        return False
    asked = op not in TO_PYTHON_NUMBERS and all(
        not value.dtype.startswith(("float", "bfloat", "complex")) for value in results
    )
    return op in REPLACES_NONFINITE or asked or uses_only_shape(op) or pending.kind == UNINITIALISED


def _only_low(value: Value) -> bool:
    """Are all its elements that are not finite -Inf, as in a mask that was passed in?"""
    return value.stats is not None and not value.stats.nan and not value.stats.posinf


class _Culprit(NamedTuple):
    """A possible cause, not a fault yet: the memory may still be filled, or the row replaced."""

    kind: str
    what: str
    path: str
    call: str
    op: str
    source: str | None
    operands: tuple[Value, ...]
    result: Value


class StopOnNonFinite:
    """A probe that raises :class:`~fxdebug.errors.NonFinite` where the first unintended NaN or infinity is made.

    An operation that only passes a NaN or infinity on does not stop the run: the one in its operand was intended, or
    the run would have stopped there. Some stop the run only when the next operation does not replace them: those made
    by divisions, logarithms, roots, powers, exponentials or a fully masked softmax, a NaN that is written as a number,
    and those in memory that was never written to.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._frames: list[Frame] = []
        self._intended: set[int] = set()  # numbers of values whose NaNs and infinities are no fault
        self._memory: dict[int, _Culprit | None] = {}  # storage → the possible cause of its content
        self._pending: dict[int, _Culprit] = {}  # number of a value → a cause, if the value is used
        self._unfilled: set[int] = set()
        self._probabilities: set[int] = set()

    def begin(self, frames: list[Frame]) -> None:
        """Begin with a recording."""
        self._frames = frames

    # Operations ----------------------------------------------------------------------------------

    def after_op(self, call_tape: CallTape, entry: TapeEntry, operands: list[Value], result: Any) -> None:
        """Judge one operation; raises ``NonFinite`` if it is to blame."""
        op = op_name(entry.what)
        if op in OVERWRITES and str(getattr(entry.what, "__name__", "")).endswith("_"):
            operands = operands[1:]  # nothing is left of the overwritten operand
        from_ranks = is_from_ranks(op, str(getattr(entry.what, "__module__", "")))
        if from_ranks:  # what it writes is seen when it is used
            for storage in [value.storage for value in operands if value.storage is not None]:
                self._memory.pop(storage, None)
                self._unfilled.discard(storage)
        if op.startswith(("empty", "new_empty", "resize")):
            self._unfilled.update(value.storage for value in entry.values if value.storage is not None)
        if is_probability(op, operands, self._probabilities):
            self._probabilities.update(value.number for value in entry.values)
        results = [*entry.values, *(value for _, value in entry.writes)]
        bad = [value for value in results if has_nonfinite(value)]
        pending = next((culprit for value in operands if (culprit := self._culprit_of(value)) is not None), None)
        if pending is not None and not _is_replaced(pending, op, results):
            if not bad or not (op in VIEWS or op in WRITES or (op in _SCALES and len(operands) == 1)):
                self._stop(pending)
            return self._mark(bad, pending)
        if not bad:
            return None
        outside = [value for value in operands if has_nonfinite(value) and not self._is_intended(value)]
        if not all(map(_only_low, outside)):
            if op not in VIEWS:
                self._stop(self._from_outside(call_tape, entry, op, outside[0]))
            return None
        literals = _literals(entry)
        verdict = find_cause(op, literals, operands, bad, self._probabilities, from_ranks=from_ranks)
        if verdict is None or verdict.kind == INTENDED:
            return self._mark(bad, None)
        culprit = self._new_culprit(call_tape, entry, op, verdict, operands, bad[0])
        if verdict.kind == UNINITIALISED or (
            bad[0].storage in self._unfilled and leaves_memory_unwritten(op, literals, operands, from_ranks=from_ranks)
        ):
            return self._mark(bad, culprit._replace(kind=UNINITIALISED))
        written = verdict.kind == NAN and any(map(math.isnan, literals))
        if op in PARTLY_UNDEFINED or written or (op in SOFTMAXES and any(map(has_nonfinite, operands))):
            return self._mark(bad, culprit)
        return self._stop(culprit)

    def _mark(self, values: list[Value], culprit: _Culprit | None) -> None:
        for value in values:
            if culprit is None:
                self._intended.add(value.number)
            else:
                self._pending[value.number] = culprit
            if value.storage is not None:
                self._memory[value.storage] = culprit

    def _culprit_of(self, value: Value) -> _Culprit | None:
        if not has_nonfinite(value):
            return None
        if value.number in self._pending:
            return self._pending[value.number]
        return None if value.storage is None or value.number in self._intended else self._memory.get(value.storage)

    def _is_intended(self, value: Value) -> bool:
        return value.number in self._intended or (value.storage is not None and value.storage in self._memory)

    def _new_culprit(
        self,
        call_tape: CallTape,
        entry: TapeEntry,
        op: str,
        verdict: NonFiniteCause,
        operands: list[Value],
        result: Value,
    ) -> _Culprit:
        frame = self._frames[call_tape.index]
        source = None if entry.line is None else entry.line.text()
        call = f"{frame.site.path or frame.site.type}#{frame.number}"
        what = f"{verdict.why}: {nonfinite_counts(result.stats)} elements"
        return _Culprit(verdict.kind, what, frame.site.path, call, op, source, tuple(operands), result)

    def _from_outside(self, call_tape: CallTape, entry: TapeEntry, op: str, value: Value) -> _Culprit:
        """Return the culprit for an operand that comes from outside the recorded operations."""
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
        return self._new_culprit(call_tape, entry, op, verdict, [value], value)

    # Calls ---------------------------------------------------------------------------------------

    def after_call(self, frame: Frame, output: Any) -> None:
        """Judge a call whose operations were not recorded; raises ``NonFinite`` if it is to blame."""
        bad = [value for value in frame.outputs or () if has_nonfinite(value)]
        if not bad:
            return
        pending = next((culprit for value in bad if (culprit := self._culprit_of(value)) is not None), None)
        if pending is not None and (frame.parent is None or pending.op in PARTLY_UNDEFINED):
            self._stop(pending)
        unknown = [value for value in bad if not self._is_intended(value) and self._culprit_of(value) is None]
        if not unknown:
            return
        given = [value for value in frame.inputs if has_nonfinite(value) and not self._is_intended(value)]
        if all(map(is_mask, unknown)):
            return self._mark(unknown, None)
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

    # Stopping ------------------------------------------------------------------------------------

    def _stop(self, culprit: _Culprit) -> None:
        where = f" ({culprit.source})" if culprit.source else ""
        lines = [f"{culprit.op} in {culprit.call}{where}: {culprit.what}"]
        lines += [f"  given {summary_of(value)}" for value in culprit.operands[:4]]
        lines += [f"  made {summary_of(culprit.result)}", _ADVICE]
        error = NonFinite("\n".join(lines))
        error.kind, error.path, error.call, error.op, error.source = culprit[0], *culprit[2:6]
        self.error = error
        raise error


def _called(frame: Frame) -> str:
    return frame.site.path or frame.site.type


def _literals(entry: TapeEntry) -> list[float]:
    literals: list[float] = []
    pending: list[Any] = [*entry.args, *entry.kwargs.values()]
    while pending:
        content = pending.pop()
        if type(content) in (list, tuple):
            pending.extend(content[:1000])
        elif type(content) is dict:
            pending.extend(content.values())
        elif type(content) is float or (type(content) is int and content.bit_length() < 1000):
            literals.append(content)
    return literals
