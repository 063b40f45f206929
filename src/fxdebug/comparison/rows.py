"""Turn the results of steps, pairs of calls and causes into the rows of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fxdebug.comparison.diagnosis.cause import UNPAIRED, Cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult, comparable
from fxdebug.comparison.diagnosis.inputs.changed_in_place import changed_in_place
from fxdebug.comparison.diagnosis.inputs.from_a_position import told_of_positions
from fxdebug.comparison.diagnosis.outputs import unexplained_limit
from fxdebug.comparison.measures import EQUAL, TENSORS, Measures
from fxdebug.comparison.pairing.called_in_parts import CalledInParts
from fxdebug.comparison.pairing.name_mapping import is_ignored
from fxdebug.comparison.pairing.returned_values import FacingValue, facing_returned, returning_call
from fxdebug.comparison.result import MatchedBy, Row, Side, Verdict
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, shape_text
from fxdebug.operators.dtypes import EPS
from fxdebug.query import network


class Rows:
    """Make rows in b's execution order; a call that only a has is placed where it would be in b."""

    def __init__(self, judge: Judge, globs: Sequence[str]) -> None:
        self._judge, self._pairs, self._globs = judge, judge.pairs, globs
        self._a, self._b = judge.pairs.a, judge.pairs.b
        self._last_in_b = _last_steps(self._b)
        self._last_in_a = _last_steps(self._a)
        self._upto: list[int] = []  # for each step of a: the last step of b that is paired with it or an earlier one
        for step in self._a.steps:
            before = self._upto[-1] if self._upto else 0
            self._upto.append(max(before, self._pairs.steps_of_a.get(step.index, before)))

    # Findings ------------------------------------------------------------------------------------

    def inputs(self) -> Iterator[Row]:
        """Yield the inputs of the runs that differ."""
        root = self._b.trace.root
        given_to_a = list(self._a.trace.root.inputs)
        for slot, value in root.inputs.named():
            # what a hook made of an input counts as a view of it, and is another value
            facing = (other for other in given_to_a if self._pairs.are_paired(other, value))
            partner = next(facing, None) or self._pairs.value_in_a(value)
            if partner is None or not comparable(partner, value):
                continue
            measures = self._judge.meter(partner, value)
            if measures.what == "unknown" or measures.error <= self._judge.meter.tolerance(partner, value):
                continue
            if self._judge.meter.facing is not None and measures.what == "shape" and value.dtype not in EPS:
                continue  # it counts the samples, of which one run has fewer
            what = "the runs were given different inputs"
            if self._were_given_the_same():
                what = "a hook or a method of the class changes the inputs, in another way than in a"
            because = f"{what}: {slot}"
            if partner.shape != value.shape:
                because += f", {shape_text(partner.shape)} in a and {shape_text(value.shape)} in b"
            written = changed_in_place(self._a.trace, self._b.trace, partner, value)
            because += written or told_of_positions(self._pairs, partner, value)
            yield Row(
                path=root.path,
                kind="input",
                source=root.source,
                a=self._side(self._a, self._a.trace.root, partner),
                b=self._side(self._b, root, value),
                verdict="adds",
                error=measures.error,
                tolerance=self._judge.meter.tolerance(partner, value),
                measures=measures,
                how="path",
                sure=1.0,
                because=because,
                position=-1,
            )

    def _were_given_the_same(self) -> bool:
        """Did the callers pass the same, where something changed it before the forward?"""
        a, b = self._a.trace.root, self._b.trace.root
        if a.given is None and b.given is None:
            return False
        one, other = list(a.given or a.inputs), list(b.given or b.inputs)
        return len(one) == len(other) and all(self._judge.meter(x, y).error == 0.0 for x, y in zip(one, other))

    def raised(self) -> Iterator[Row]:
        """Yield the call that raised, where only one of the runs did, or each of them something else."""
        one, other = self._a.trace.error, self._b.trace.error
        if (one is None and other is None) or (one is not None and other is not None and str(one) == str(other)):
            return
        run = self._a if other is None else self._b
        call = next((call for call in run.trace.calls if call.error is not None and call.error.here), run.trace.root)
        side = self._side(run, call, None)
        because = f"{call.error} (only {'b' if one is None else 'a'} raised)"
        if one is not None and other is not None:
            because = f"{one} in a, {other} in b"
        position = len(self._b.steps)
        yield Row(
            path=call.path,
            kind="raised",
            source=(None if call.error is None else call.error.source) or call.source,
            a=side if run is self._a else None,
            b=side if run is self._b else None,
            verdict="adds",
            error=math.inf,
            because=because,
            position=position,
        )

    def finding(self, cause: Cause) -> Row:
        """Return a cause as a row."""
        b = step_side(cause.b, cause.value_b)
        a = step_side(cause.a, cause.value_a)
        return Row(
            path=cause.call.path,
            op=cause.op,
            kind=cause.kind,
            source=_source_line(cause),
            a=a,
            b=b or self._side(self._b, cause.call, cause.value_b),
            verdict="adds",
            error=cause.measures.error,
            error_in=cause.error_in,
            tolerance=cause.tolerance,
            measures=cause.measures,
            how=self._how(cause.b),
            sure=cause.confidence,
            because=cause.because,
            position=cause.position,
        )

    def in_parts(self, called: CalledInParts) -> Iterator[Row]:
        """Yield the first call on a part of what a call of a is given that returns something else."""
        unlike = called.first()
        if unlike is not None:
            steps = [step.index for call in unlike.call.walk() for step in self._b.by_call.get(call.index, ())]
            yield Row(
                path=unlike.call.path,
                op=unlike.call.type,
                kind="values",
                source=unlike.call.source,
                a=self._side(self._a, unlike.whole, unlike.a),
                b=self._side(self._b, unlike.call, unlike.b),
                verdict="adds",
                error=unlike.error,
                tolerance=unlike.tolerance,
                measures=Measures(unlike.error, TENSORS),
                how="path",
                because=unlike.text,
                position=max(steps, default=0),
            )

    def _how(self, step: Step | None) -> MatchedBy:
        pair = None if step is None else self._pairs.steps.get(step.index)
        return "dataflow" if pair is None else pair.matched_by

    # All rows ------------------------------------------------------------------------------------

    def all(self, findings: Sequence[Row], absorbed: dict[int, Cause]) -> list[Row]:
        """Return every pair of operations and of calls in b's order, with the calls that have no partner."""
        finding_at: dict[int, Row] = {}
        for row in findings:
            finding_at.setdefault(row.position, row)
        rows = [self._operation(result, finding_at, absorbed) for result in self._judge.results.values()]
        # other inputs are no error that the model adds
        adding = _with_ancestors(row.b.call for row in findings if row.b is not None and row.kind != "input")
        made = [value for step in map(self._b.steps.__getitem__, self._own_steps(absorbed)) for value in step.outputs]
        faded = {self._b.root(value).number for value in made}
        rows += [self._call(call, adding, faded) for call in self._b.trace.calls]
        rows += [self._only_a(call) for call in self._a.trace.calls if call.index not in self._pairs.calls_of_a]
        included = {id(row) for row in rows}
        rows += [row for row in findings if id(row) not in included]
        return sorted(rows, key=_return_order)

    def _operation(self, result: StepResult, finding_at: dict[int, Row], absorbed: dict[int, Cause]) -> Row:
        step = result.step
        finding = finding_at.get(step.index)
        if finding is not None and (finding.path, finding.op) == (step.call.path, step.op):
            return finding
        verdict: Verdict = "equal"
        if is_ignored(step.call.path, self._globs):
            verdict = "ignored"
        elif step.index in absorbed:
            verdict = "absorbed"
        elif result.error > result.tolerance:
            verdict = "inherited"
        pair = self._pairs.steps.get(step.index)
        return Row(
            path=step.call.path,
            op=step.op,
            source=step.node.source,
            a=step_side(result.partner, result.a),
            b=step_side(step, result.b),
            verdict=verdict,
            error=result.error,
            error_in=result.error_in,
            tolerance=result.tolerance,
            measures=result.measures,
            how="values" if pair is None else pair.matched_by,
            sure=0.8 if pair is None else pair.confidence,
            position=step.index,
        )

    def _own_steps(self, absorbed: Iterable[int]) -> list[int]:
        return [index for index in absorbed if index < len(self._b.steps)]

    def _call(self, call: Call, adding: set[int], faded: set[int]) -> Row:
        """Return the row of a call of b. ``faded``: the numbers of values whose difference is absorbed."""
        position = self._last_in_b[call.index]
        partner = self._pairs.call_in_a(call)
        if partner is None:
            value = next(iter(call.outputs or ()), None)
            side = self._side(self._b, call, value)
            return Row(
                path=call.path,
                source=call.source,
                b=side,
                verdict="only_b",
                position=position,
            )
        pair = self._pairs.calls[call.index]
        named = pair.matched_by in ("path", "mapping")
        error_in, _, _, _ = self._largest_error(partner.inputs, call.inputs, named)
        error, measures, a, b = self._largest_error(partner.outputs or (), call.outputs or (), named)
        tolerance = self._judge.clean if a is None or b is None else self._tolerance(a, b)
        verdict: Verdict = "unknown" if measures.what == "unknown" else "equal"
        if is_ignored(call.path, self._globs):
            verdict = "ignored"
        elif error > tolerance and b is not None and self._b.root(b).number in faded:
            verdict = "absorbed"
        elif error > tolerance:
            verdict = "adds" if call.index in adding else "inherited"
        return Row(
            path=call.path,
            source=call.source,
            a=self._side(self._a, partner, a),
            b=self._side(self._b, call, b),
            verdict=verdict,
            error=error,
            error_in=error_in,
            tolerance=tolerance,
            measures=measures,
            how=pair.matched_by,
            sure=pair.confidence,
            position=position,
        )

    def _only_a(self, call: Call) -> Row:
        value = next(iter(call.outputs or ()), None)
        last = self._last_in_a[call.index]
        position = self._upto[last] if self._upto else 0
        side = self._side(self._a, call, value)
        return Row(
            path=call.path,
            source=call.source,
            a=side,
            verdict="only_a",
            position=position,
        )

    def _side(self, run: StepList, call: Call, value: Value | None) -> Side:
        """Return a call as a side of a row."""
        id = network.network_of(run.trace).call_id(call)
        return Side(call.path, call, call.type, None, call.source, value, id)

    def _largest_error(
        self, a: Iterable[Value], b: Iterable[Value], named: bool
    ) -> tuple[float, Measures, Value | None, Value | None]:
        """Return the largest error between the inputs or outputs of two calls: of paired values, of the rest in order.

        For calls of one name (``named``) the order decides; for others the sizes must agree, too.
        """
        one, other = list(a), list(b)
        sides: list[tuple[Value, Value]] = []
        for right in list(other):
            left = next((left for left in one if self._pairs.are_paired(left, right)), None)
            if left is not None:
                sides.append((left, right))
                one.remove(left)
                other.remove(right)
        if len(one) == len(other):
            sides += [(x, y) for x, y in zip(one, other) if named or x.numel == y.numel]
        measured = [(self._judge.meter(x, y), x, y) for x, y in sides if comparable(x, y)]
        measured = [measurement for measurement in measured if measurement[0].what != "unknown"]
        if not measured:
            empty = not sides and not one and not other
            return 0.0, EQUAL if empty else Measures(0.0, what="unknown"), None, None
        measures, x, y = max(measured, key=lambda measurement: measurement[0].error)
        return measures.error, measures, x, y

    def outputs(self) -> list[Row]:
        """Return what the two models return, side by side, in the order of b."""
        return [self._returned_row(side) for side in facing_returned(self._pairs) if comparable(side.a, side.b)]

    def _returned_row(self, side: FacingValue) -> Row:
        measures = self._judge.meter(side.a, side.b)
        tolerance = self._tolerance(side.a, side.b)
        root = self._b.trace.root
        verdict: Verdict = "unknown" if measures.what == "unknown" else "equal"
        return Row(
            path=root.path,
            op=side.slot or None,
            a=self._side(self._a, returning_call(self._a, side.a), side.a),
            b=self._side(self._b, returning_call(self._b, side.b), side.b),
            verdict=verdict if measures.error <= tolerance else "inherited",
            error=measures.error,
            tolerance=tolerance,
            measures=measures,
        )

    def unexplained_outputs(self, outputs: Sequence[Row]) -> Iterator[Row]:
        """Yield a finding for the returned value that differs most, where it differs by more than rounding does."""
        limit = unexplained_limit(self._judge)
        far = [row for row in outputs if row.measured and row.error > self._limit_of_output(row, limit)]
        for row in sorted(far, key=lambda row: -row.error)[:1]:
            what = f"{row.op} differs" if row.op else "what is returned differs"
            if row.measures.what == "shape" and row.a is not None and row.b is not None:
                shapes = [shape_text(side.value.shape) for side in (row.a, row.b) if side.value is not None]
                what += f", {' in a and '.join(shapes)} in b"
            yield replace(
                row,
                op=None,
                kind="shape" if row.measures.what == "shape" else "values",
                verdict="adds",
                sure=0.3,
                because=f"{what}{UNPAIRED}",
                position=len(self._b.steps),
            )

    def _limit_of_output(self, row: Row, limit: float) -> float:
        """Return the error that rounding may add up to; near a tie it may change an integer."""
        value = None if row.b is None else row.b.value
        if value is None or value.dtype in EPS or row.measures.what == "shape":
            return max(limit, row.tolerance)
        return self._judge.integer_share if self._judge.narrow is None else math.inf

    def _tolerance(self, a: Value, b: Value) -> float:
        return max(self._judge.meter.tolerance(a, b), self._judge.casting_tolerance(a, b))

    def notes(self) -> list[str]:
        """Return notes on what could not be compared."""
        return [*self._notes_on_ranks(), *self._notes_on_graphs()]

    def _notes_on_ranks(self) -> Iterator[str]:
        """Yield a note where one side holds shards or partial sums that the other one does not hold."""
        a, b = self._a.trace, self._b.trace
        parts = {side: part_of_rank(trace) for side, trace in (("a", a), ("b", b))}
        if a.settings.get("rank") == b.settings.get("rank") and all(parts.values()):
            return
        for side, part in parts.items():
            if part:
                yield f"{side} holds {part}: they differ by nature from what the other run holds"

    def _notes_on_graphs(self) -> list[str]:
        if self._a.trace.call_graphs is None or self._b.trace.call_graphs is None:
            return ["one of the runs has no graphs (graph=False): calls are compared, operations are not"]
        return []


def part_of_rank(trace: TraceData) -> str:
    """Return what a run holds of tensors that are distributed over several ranks; empty where all are whole."""
    parts = sum(value.sharding is not None and bool(str(value.sharding)) for value in trace.values)
    rank, size = trace.settings.get("rank"), trace.settings.get("world_size")
    whose = f"rank {rank} of {size}" if rank is not None and size else "one rank"
    return f"shards and partial sums of {whose} ({parts} tensors)" if parts else ""


def _source_line(cause: Cause) -> str | None:
    """Return the line in the body of a cause's call: of the operation, or of the inner call that contains it."""
    if cause.b is None:
        return cause.call.source
    call = cause.b.call
    while call.parent is not None and call is not cause.call and call.parent is not cause.call:
        call = call.parent
    inner = call is not cause.call and call.parent is cause.call
    return (call.source if inner else cause.b.node.source) or cause.b.node.source or cause.call.source


def step_side(step: Step | None, value: Value | None) -> Side | None:
    """Return a step as a side of a row."""
    if step is None:
        return None
    return Side(step.call.path, step.call, step.call.type, step.op, step.node.source, value, step.node.id)


def _last_steps(run: StepList) -> list[int]:
    """Return for each call the index of the last step in it, or that of the previous call if it has no steps."""
    calls = run.trace.calls
    last = [run.by_call[call.index][-1].index if run.by_call.get(call.index) else -1 for call in calls]
    for call in reversed(calls):  # children come after their parents
        if call.parent_index is not None:
            last[call.parent_index] = max(last[call.parent_index], last[call.index])
    for call in calls:
        if last[call.index] < 0:
            last[call.index] = last[call.index - 1] if call.index else 0
    return last


def _with_ancestors(calls: Iterable[Call]) -> set[int]:
    """Return the indices of calls and of all that they are in."""
    return {each.index for call in calls for each in call.with_ancestors()}


def _return_order(row: Row) -> tuple[int, bool, int]:
    """Return the key to sort rows by return: an operation before the call it is in, inner calls before outer ones."""
    side = row.b or row.a
    return row.position, row.op is None, 0 if side is None else -side.call.depth
