"""Turn the results of steps, pairs of calls and causes into the rows of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fxdebug.comparison.diagnosis.cause import Cause
from fxdebug.comparison.diagnosis.judge import Judge, StepResult, comparable
from fxdebug.comparison.diagnosis.outputs import facing_outputs
from fxdebug.comparison.measures import EQUAL, Measures
from fxdebug.comparison.pairing.name_mapping import is_ignored
from fxdebug.comparison.result import MatchedBy, Row, Side, Verdict
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call
from fxdebug.data.values import Value, shape_text
from fxdebug.query import network


class Rows:
    """Makes rows, in b's execution order; what only a has stands where it would have been in b."""

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
        for slot, value in root.inputs.named():
            partner = self._pairs.value_in_a(value)
            if partner is None or not comparable(partner, value):
                continue
            measures = self._judge.meter(partner, value)
            if measures.what == "unknown" or measures.error <= self._judge.meter.tolerance(partner, value):
                continue
            because = f"the runs were given different inputs: {slot}"
            if measures.what == "shape":
                because += f", {shape_text(partner.shape)} in a and {shape_text(value.shape)} in b"
            yield Row(
                root.path, None, "input", root.source, self._side(self._a, self._a.trace.root, partner),
                self._side(self._b, root, value), "adds", measures.error, 0.0,
                self._judge.meter.tolerance(partner, value), measures, "path", 1.0, because, -1,
            )  # fmt: skip

    def raised(self) -> Iterator[Row]:
        """Yield the call that raised, where only one of the runs did."""
        one, other = self._a.trace.error, self._b.trace.error
        if (one is None) == (other is None):
            return
        run = self._b if one is None else self._a
        call = next((call for call in run.trace.calls if call.error is not None and call.error.here), run.trace.root)
        side = self._side(run, call, None)
        because = f"{call.error} (only {'b' if one is None else 'a'} raised)"
        position = len(self._b.steps)
        yield Row(
            call.path, None, "raised", call.source, side if one is not None else None,
            side if one is None else None, "adds", math.inf, because=because, position=position,
        )  # fmt: skip

    def finding(self, cause: Cause) -> Row:
        """Return a cause as a row, in b's names where b has it."""
        b = _step_side(cause.b, cause.value_b)
        a = _step_side(cause.a, cause.value_a)
        return Row(
            cause.call.path,
            cause.op,
            cause.kind,
            _source_line(cause),
            a,
            b or self._side(self._b, cause.call, cause.value_b),
            "adds",
            cause.measures.error,
            cause.error_in,
            cause.tolerance,
            cause.measures,
            self._how(cause.b),
            cause.confidence,
            cause.because,
            cause.position,
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
        adding = _with_ancestors(row.b.call for row in findings if row.b is not None)
        rows += [self._call(call, adding) for call in self._b.trace.calls]
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
            step.call.path, step.op, None, step.node.source, _step_side(result.partner, result.a),
            _step_side(step, result.b), verdict, result.error, result.error_in, result.tolerance, result.measures,
            "values" if pair is None else pair.matched_by, 0.8 if pair is None else pair.confidence, "", step.index,
        )  # fmt: skip

    def _call(self, call: Call, adding: set[int]) -> Row:
        position = self._last_in_b[call.index]
        partner = self._pairs.call_in_a(call)
        if partner is None:
            value = next(iter(call.outputs or ()), None)
            side = self._side(self._b, call, value)
            return Row(call.path, None, None, call.source, None, side, "only_b", position=position)
        pair = self._pairs.calls[call.index]
        named = pair.matched_by in ("path", "mapping")
        error_in, _, _, _ = self._largest_error(partner.inputs, call.inputs, named)
        error, measures, a, b = self._largest_error(partner.outputs or (), call.outputs or (), named)
        tolerance = self._judge.clean if a is None or b is None else self._judge.meter.tolerance(a, b)
        verdict: Verdict = "unknown" if measures.what == "unknown" else "equal"
        if is_ignored(call.path, self._globs):
            verdict = "ignored"
        elif error > tolerance:
            verdict = "adds" if call.index in adding else "inherited"
        return Row(
            call.path, None, None, call.source, self._side(self._a, partner, a), self._side(self._b, call, b), verdict,
            error, error_in, tolerance, measures, pair.matched_by, pair.confidence, "", position,
        )  # fmt: skip

    def _only_a(self, call: Call) -> Row:
        value = next(iter(call.outputs or ()), None)
        last = self._last_in_a[call.index]
        position = self._upto[last] if self._upto else 0
        side = self._side(self._a, call, value)
        return Row(call.path, None, None, call.source, side, None, "only_a", position=position)

    def _side(self, run: StepList, call: Call, value: Value | None) -> Side:
        """Return a call as a side of a row."""
        id = network.network_of(run.trace).call_id(call)
        return Side(call.path, call, call.type, None, call.source, value, id)

    def _largest_error(
        self, a: Iterable[Value], b: Iterable[Value], named: bool
    ) -> tuple[float, Measures, Value | None, Value | None]:
        """Return the largest error of what two calls were given or returned: of pairs, then of the rest in order.

        Calls of one name (``named``) return the same in the same place; others only where the sizes agree.
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
        """Return the outputs of the two models, slot by slot."""
        root_a, root_b = self._a.trace.root, self._b.trace.root
        if root_a.outputs is None or root_b.outputs is None:
            return []
        sides = {value.number: one for one, value in facing_outputs(root_a.outputs, root_b.outputs)}
        rows = []
        for slot, value in root_b.outputs.named():
            partner = sides.get(value.number) or self._pairs.value_in_a(value)
            if partner is None or not comparable(partner, value):
                continue
            measures = self._judge.meter(partner, value)
            tolerance = self._judge.meter.tolerance(partner, value)
            rows.append(
                Row(
                    root_b.path,
                    slot or None,
                    None,
                    None,
                    self._side(self._a, root_a, partner),
                    self._side(self._b, root_b, value),
                    "equal" if measures.error <= tolerance else "inherited",
                    measures.error,
                    0.0,
                    tolerance,
                    measures,
                )
            )
        return rows

    def notes(self) -> list[str]:
        """Return notes on what could not be compared."""
        if self._a.trace.explanation is None or self._b.trace.explanation is None:
            return ["one of the runs has no graphs (graph=False): calls are compared, operations are not"]
        return []


def _source_line(cause: Cause) -> str | None:
    """Return the line in the body of a cause's call: that of the operation, or of the inner call with it."""
    if cause.b is None:
        return cause.call.source
    call = cause.b.call
    while call.parent is not None and call is not cause.call and call.parent is not cause.call:
        call = call.parent
    inner = call is not cause.call and call.parent is cause.call
    return (call.source if inner else cause.b.node.source) or cause.b.node.source or cause.call.source


def _step_side(step: Step | None, value: Value | None) -> Side | None:
    if step is None:
        return None
    return Side(step.call.path, step.call, step.call.type, step.op, step.node.source, value, step.node.id)


def _last_steps(run: StepList) -> list[int]:
    """Return for each call the last step in it, which is where it returned; without steps, that of the call before."""
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
    indices: set[int] = set()
    for call in calls:
        at: Call | None = call
        while at is not None and at.index not in indices:
            indices.add(at.index)
            at = at.parent
    return indices


def _return_order(row: Row) -> tuple[int, bool, int]:
    """Sort rows as they returned: an operation before the call it is in, inner calls before outer ones."""
    side = row.b or row.a
    return row.position, row.op is None, 0 if side is None else -side.call.depth
