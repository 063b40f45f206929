"""From judged steps and pairs of calls to the rows that people read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fxdebug.comparison.diagnosis.finding import Cause
from fxdebug.comparison.diagnosis.judge import Judge, StepResult, comparable
from fxdebug.comparison.diagnosis.outputs import returned
from fxdebug.comparison.measures import EQUAL, Measures
from fxdebug.comparison.pairing.name_mapping import ignored
from fxdebug.comparison.result import How, Row, Side, Verdict
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call
from fxdebug.data.values import Value, shape_text
from fxdebug.query import network


class Rows:
    """Makes rows; keeps the order of b's execution, with what only a has where it would have been."""

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
        """Inputs of the runs that differ."""
        root = self._b.trace.root
        for slot, value in root.inputs.named():
            partner = self._pairs.of_value(value)
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
        """The call that raised, where only b did; that of a, where only a did."""
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

    def finding(self, blame: Cause) -> Row:
        """A finding as a row: in b's names, where b has it."""
        b = _of_step(blame.b, blame.value_b)
        a = _of_step(blame.a, blame.value_a)
        return Row(
            blame.call.path,
            blame.op,
            blame.kind,
            _line(blame),
            a,
            b or self._side(self._b, blame.call, blame.value_b),
            "adds",
            blame.measures.error,
            blame.error_in,
            blame.tolerance,
            blame.measures,
            self._how(blame.b),
            blame.sure,
            blame.because,
            blame.position,
        )

    def _how(self, step: Step | None) -> How:
        found = None if step is None else self._pairs.steps.get(step.index)
        return "dataflow" if found is None else found.how

    # All rows ------------------------------------------------------------------------------------

    def all(self, findings: Sequence[Row], absorbed: dict[int, Cause]) -> list[Row]:
        """Every pair of calls and of operations in b's order, and what has no partner."""
        guilty: dict[int, Row] = {}
        for row in findings:
            guilty.setdefault(row.position, row)
        rows = [self._of_judged(judged, guilty, absorbed) for judged in self._judge.judged.values()]
        adding = _around(row.b.call for row in findings if row.b is not None)
        rows += [self._of_call(call, adding) for call in self._b.trace.calls]
        rows += [self._only_a(call) for call in self._a.trace.calls if call.index not in self._pairs.calls_of_a]
        told = {id(row) for row in rows}
        rows += [row for row in findings if id(row) not in told]
        return sorted(rows, key=_in_order)

    def _of_judged(self, judged: StepResult, guilty: dict[int, Row], absorbed: dict[int, Cause]) -> Row:
        step = judged.step
        found = guilty.get(step.index)
        if found is not None and (found.path, found.op) == (step.call.path, step.op):
            return found
        verdict: Verdict = "equal"
        if ignored(step.call.path, self._globs):
            verdict = "ignored"
        elif step.index in absorbed:
            verdict = "absorbed"
        elif judged.error > judged.tolerance:
            verdict = "inherited"
        pair = self._pairs.steps.get(step.index)
        return Row(
            step.call.path, step.op, None, step.node.source, _of_step(judged.partner, judged.a),
            _of_step(step, judged.b), verdict, judged.error, judged.error_in, judged.tolerance, judged.measures,
            "values" if pair is None else pair.how, 0.8 if pair is None else pair.sure, "", step.index,
        )  # fmt: skip

    def _of_call(self, call: Call, adding: set[int]) -> Row:
        position = self._last_in_b[call.index]
        partner = self._pairs.of_call(call)
        if partner is None:
            value = next(iter(call.outputs or ()), None)
            side = self._side(self._b, call, value)
            return Row(call.path, None, None, call.source, None, side, "only_b", position=position)
        found = self._pairs.calls[call.index]
        named = found.how in ("path", "mapping")
        error_in, _, _, _ = self._between(partner.inputs, call.inputs, named)
        error, measures, a, b = self._between(partner.outputs or (), call.outputs or (), named)
        tolerance = self._judge.clean if a is None or b is None else self._judge.meter.tolerance(a, b)
        verdict: Verdict = "unknown" if measures.what == "unknown" else "equal"
        if ignored(call.path, self._globs):
            verdict = "ignored"
        elif error > tolerance:
            verdict = "adds" if call.index in adding else "inherited"
        return Row(
            call.path, None, None, call.source, self._side(self._a, partner, a), self._side(self._b, call, b), verdict,
            error, error_in, tolerance, measures, found.how, found.sure, "", position,
        )  # fmt: skip

    def _only_a(self, call: Call) -> Row:
        value = next(iter(call.outputs or ()), None)
        last = self._last_in_a[call.index]
        position = self._upto[last] if self._upto else 0
        side = self._side(self._a, call, value)
        return Row(call.path, None, None, call.source, side, None, "only_a", position=position)

    def _side(self, run: StepList, call: Call, value: Value | None) -> Side:
        """A call as a side of a row."""
        id = network.network_of(run.trace).call_id(call)
        return Side(call.path, call, call.type, None, call.source, value, id)

    def _between(
        self, a: Iterable[Value], b: Iterable[Value], named: bool
    ) -> tuple[float, Measures, Value | None, Value | None]:
        """The worst of what two calls were given or returned: paired values with each other, the rest in order.

        Calls of one name (``named``) return the same in the same place; others only where the sizes agree.
        """
        one, other = list(a), list(b)
        sides: list[tuple[Value, Value]] = []
        for right in list(other):
            left = next((left for left in one if self._pairs.are(left, right)), None)
            if left is not None:
                sides.append((left, right))
                one.remove(left)
                other.remove(right)
        if len(one) == len(other):
            sides += [(x, y) for x, y in zip(one, other) if named or x.numel == y.numel]
        measured = [(self._judge.meter(x, y), x, y) for x, y in sides if comparable(x, y)]
        measured = [found for found in measured if found[0].what != "unknown"]
        if not measured:
            nothing = not sides and not one and not other
            return 0.0, EQUAL if nothing else Measures(0.0, what="unknown"), None, None
        measures, x, y = max(measured, key=lambda found: found[0].error)
        return measures.error, measures, x, y

    def outputs(self) -> list[Row]:
        """What the two models returned, slot by slot."""
        root_a, root_b = self._a.trace.root, self._b.trace.root
        if root_a.outputs is None or root_b.outputs is None:
            return []
        sides = {value.number: one for one, value in returned(root_a.outputs, root_b.outputs)}
        rows = []
        for slot, value in root_b.outputs.named():
            partner = sides.get(value.number) or self._pairs.of_value(value)
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
        """What could not be compared, and by what the rest was."""
        found = []
        if self._a.trace.call_graphs is None or self._b.trace.call_graphs is None:
            found.append("one of the runs has no graphs (graph=False): calls are compared, operations are not")
        return found


def _line(blame: Cause) -> str | None:
    """The line in the body of the call to blame: of the operation, or where the call with the operation is made."""
    if blame.b is None:
        return blame.call.source
    call = blame.b.call
    while call.parent is not None and call is not blame.call and call.parent is not blame.call:
        call = call.parent
    inner = call is not blame.call and call.parent is blame.call
    return (call.source if inner else blame.b.node.source) or blame.b.node.source or blame.call.source


def _of_step(step: Step | None, value: Value | None) -> Side | None:
    if step is None:
        return None
    return Side(step.call.path, step.call, step.call.type, step.op, step.node.source, value, step.node.id)


def _last_steps(run: StepList) -> list[int]:
    """For each call the last step in it: that is where it returned. Of one without steps, that of the one before."""
    calls = run.trace.calls
    last = [run.inside[call.index][-1].index if run.inside.get(call.index) else -1 for call in calls]
    for call in reversed(calls):  # children come after their parents
        if call.parent_index is not None:
            last[call.parent_index] = max(last[call.parent_index], last[call.index])
    for call in calls:
        if last[call.index] < 0:
            last[call.index] = last[call.index - 1] if call.index else 0
    return last


def _around(calls: Iterable[Call]) -> set[int]:
    """The calls and all that they are in."""
    found: set[int] = set()
    for call in calls:
        at: Call | None = call
        while at is not None and at.index not in found:
            found.add(at.index)
            at = at.parent
    return found


def _in_order(row: Row) -> tuple[int, bool, int]:
    """As they returned: an operation before the call it is in, inner calls before outer ones."""
    side = row.b or row.a
    return row.position, row.op is None, 0 if side is None else -side.call.depth
