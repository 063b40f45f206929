"""From judged steps and pairs of calls to the rows that people read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fxdebug.comparison.accusation import Blame
from fxdebug.comparison.judge import Judge, Judged, comparable
from fxdebug.comparison.mapping import ignored
from fxdebug.comparison.measures import EQUAL, Measures
from fxdebug.comparison.steps import Step
from fxdebug.comparison.verdict import Row, Side
from fxdebug.trace import Call
from fxdebug.values import Value, shape_text


class Rows:
    """Makes rows; keeps the order of b's execution, with what only a has where it would have been."""

    def __init__(self, judge: Judge, globs: Sequence[str]) -> None:
        self._judge, self._pairs, self._globs = judge, judge.pairs, globs
        self._a, self._b = judge.pairs.a, judge.pairs.b

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
                root.path, None, "input", root.source, _of_call(self._a.trace.root, partner), _of_call(root, value),
                "adds", measures.error, 0.0, self._judge.meter.tolerance(partner, value), measures, "path", 1.0,
                because, -1,
            )  # fmt: skip

    def raised(self) -> Iterator[Row]:
        """The call that raised, where only b did; that of a, where only a did."""
        one, other = self._a.trace.error, self._b.trace.error
        if (one is None) == (other is None):
            return
        run = self._b if one is None else self._a
        call = next((call for call in run.trace.calls if call.error is not None and call.error.here), run.trace.root)
        side = _of_call(call, None)
        because = f"{call.error} (only {'b' if one is None else 'a'} raised)"
        position = len(self._b.steps)
        yield Row(
            call.path, None, "raised", call.source, side if one is not None else None,
            side if one is None else None, "adds", math.inf, because=because, position=position,
        )  # fmt: skip

    def finding(self, blame: Blame) -> Row:
        """A finding as a row: in b's names, where b has it."""
        b = _of_step(blame.b, blame.value_b)
        a = _of_step(blame.a, blame.value_a)
        source = blame.b.node.source if blame.b is not None and blame.b.call is blame.call else None
        return Row(
            blame.call.path,
            blame.op,
            blame.kind,
            source or (blame.b.node.source if blame.b is not None else None) or blame.call.source,
            a,
            b or _of_call(blame.call, blame.value_b),
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

    def _how(self, step: Step | None) -> str:
        found = None if step is None else self._pairs.steps.get(step.index)
        return "dataflow" if found is None else found.how

    # All rows ------------------------------------------------------------------------------------

    def all(self, findings: Iterable[Row], absorbed: dict[int, Blame]) -> list[Row]:
        """Every pair of calls and of operations in b's order, and what has no partner."""
        guilty: dict[int, Row] = {}
        for row in findings:
            guilty.setdefault(row.position, row)
        rows = [self._of_judged(judged, guilty, absorbed) for judged in self._judge.judged.values()]
        rows += [self._of_call(call, guilty) for call in self._b.trace.calls]
        rows += [self._only_a(call) for call in self._a.trace.calls if call.index not in self._pairs.calls_of_a]
        told = {(row.path, row.op, row.position) for row in rows}
        rows += [row for row in findings if (row.path, row.op, row.position) not in told]
        return sorted(rows, key=lambda row: row.position)

    def _of_judged(self, judged: Judged, guilty: dict[int, Row], absorbed: dict[int, Blame]) -> Row:
        step = judged.step
        found = guilty.get(step.index)
        if found is not None and (found.path, found.op) == (step.call.path, step.op):
            return found
        verdict = "equal"
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

    def _of_call(self, call: Call, guilty: dict[int, Row]) -> Row:
        position = self._last_in(call)
        partner = self._pairs.of_call(call)
        if partner is None:
            value = next(iter(call.outputs or ()), None)
            return Row(call.path, None, None, call.source, None, _of_call(call, value), "only_b", position=position)
        found = self._pairs.calls[call.index]
        error_in, _, _, _ = self._between(partner.inputs, call.inputs)
        error, measures, a, b = self._between(partner.outputs or (), call.outputs or ())
        tolerance = self._judge.clean if a is None or b is None else self._judge.meter.tolerance(a, b)
        inside = {c.index for c in call.walk()}
        adds = any(r.b is not None and r.b.call.index in inside for r in guilty.values())
        verdict = "unknown" if measures.what == "unknown" else "equal"
        if ignored(call.path, self._globs):
            verdict = "ignored"
        elif error > tolerance:
            verdict = "adds" if adds else "inherited"
        return Row(
            call.path, None, None, call.source, _of_call(partner, a), _of_call(call, b), verdict, error, error_in,
            tolerance, measures, found.how, found.sure, "", position,
        )  # fmt: skip

    def _only_a(self, call: Call) -> Row:
        value = next(iter(call.outputs or ()), None)
        index = max((found for step in self._steps_in_a(call) for found in [step.index]), default=0)
        before = [b for a, b in self._pairs.steps_of_a.items() if a <= index]
        return Row(
            call.path, None, None, call.source, _of_call(call, value), None, "only_a",
            position=max(before, default=0),
        )  # fmt: skip

    def _steps_in_a(self, call: Call) -> list[Step]:
        return [step for inner in call.walk() for step in self._a.inside.get(inner.index, ())]

    def _last_in(self, call: Call) -> int:
        """The position of the last step in a call: that is where it returned."""
        return max((s.index for inner in call.walk() for s in self._b.inside.get(inner.index, ())), default=0)

    def _between(self, a: Iterable[Value], b: Iterable[Value]) -> tuple[float, Measures, Value | None, Value | None]:
        """The worst of what two calls were given or returned: paired values with each other, the rest in order."""
        one, other = list(a), list(b)
        sides: list[tuple[Value, Value]] = []
        for right in list(other):
            left = next((left for left in one if self._pairs.are(left, right)), None)
            if left is not None:
                sides.append((left, right))
                one.remove(left)
                other.remove(right)
        if len(one) == len(other):
            sides += zip(one, other)
        measured = [(self._judge.meter(x, y), x, y) for x, y in sides if comparable(x, y)]
        measured = [found for found in measured if found[0].what != "unknown"]
        if not measured:
            return 0.0, Measures(0.0, what="unknown") if sides else EQUAL, None, None
        measures, x, y = max(measured, key=lambda found: found[0].error)
        return measures.error, measures, x, y

    def outputs(self) -> list[Row]:
        """What the two models returned, slot by slot."""
        root_a, root_b = self._a.trace.root, self._b.trace.root
        named = {} if root_a.outputs is None else dict(root_a.outputs.named())
        rows = []
        for slot, value in () if root_b.outputs is None else root_b.outputs.named():
            partner = named.get(slot) or self._pairs.of_value(value)
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
                    _of_call(root_a, partner),
                    _of_call(root_b, value),
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
        if self._a.trace.explanation is None or self._b.trace.explanation is None:
            found.append("one of the runs has no graphs (graph=False): calls are compared, operations are not")
        return found


def _of_step(step: Step | None, value: Value | None) -> Side | None:
    if step is None:
        return None
    return Side(step.call.path, step.call, step.call.type, step.op, step.node.source, value)


def _of_call(call: Call, value: Value | None) -> Side:
    return Side(call.path, call, call.type, None, call.source, value)
