"""Findings of isolating mode on replaced values: wrong values that callers hand over, or that calls return.

A call is given the inputs of its partner in a, so nothing in it shows that its caller handed it a wrong value. Its
caller gets the outputs of the partner, so nothing later shows that the call returned a wrong value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from fxdebug.comparison.diagnosis.cause import values_differ
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, comparable
from fxdebug.comparison.diagnosis.weights.merged_adapter import is_merged
from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.pairing.name_mapping import is_ignored
from fxdebug.comparison.pairing.patched_values import is_another_tensor
from fxdebug.comparison.result import Kind, MatchedBy, Row, Side
from fxdebug.comparison.steps import StepList
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Value
from fxdebug.operators.dtypes import EPS
from fxdebug.query import network

Slots: TypeAlias = Inputs | Outputs

NOT_AS_IN_A = "not as in a"  # of a value that comes from the same place on both sides: it says that it differs


Explain: TypeAlias = Callable[[Value, Value, Measures], Row | None]


def handover_findings(judge: Judge, findings: Sequence[Row], globs: Sequence[str], explain: Explain) -> Iterator[Row]:
    """Yield the findings of a run in isolating mode that no other finding explains; none for other runs.

    A value that another finding leads to is not reported again. ``explain`` returns the step that makes a value of b
    another one than that of a, where the code of the caller shows it.
    """
    run = judge.pairs.b
    if not run.trace.settings.get("isolated"):
        return
    explained = {row.b.node for row in findings if row.b is not None}
    for call in run.trace.calls:
        partner = None if call.parent is None else judge.pairs.call_in_a(call)
        if partner is None or call.parent is None:
            continue
        ways = (
            (call.given, call.inputs, partner.given, call.parent, _input_row),
            (call.outputs, call.returned, None if partner.returned is None else partner.outputs, call, _output_row),
        )
        for before, after, hooked, whose, make_row in ways:
            if before is None or after is None or is_ignored(whose.path, globs):
                continue
            for slot, wrong, measures, limit in _wrongly_replaced(judge, before, after, hooked):
                inherits = make_row is _output_row and (
                    _was_given_others(judge, partner, call) or _is_merged(judge, partner, call)
                )
                if inherits or explained & _upstream_nodes(run, wrong) or _may_round(judge, wrong):
                    continue
                row = make_row(judge, call, slot, wrong, measures, limit)
                if make_row is _input_row and row.a is not None and row.a.value is not None:
                    cause = explain(row.a.value, wrong, measures)
                    row = cause if cause is not None and cause.path == row.path else row
                yield row
                break


def _was_given_others(judge: Judge, a: Call, b: Call) -> bool:
    """Was a call of b left with an input that differs from a's, in the same slot, by more than rounding?

    So it is where that looked like a's input in another order.
    """
    given = dict(a.inputs.named())
    sides = [(given[slot], value) for slot, value in b.inputs.named() if slot in given]
    return any(values_differ(judge, one, other) for one, other in sides if one.dtype in EPS)


def _may_round(judge: Judge, wrong: Value) -> bool:
    """Is it a value in a narrow dtype whose own step adds nothing beyond what rounding makes of what it was given?"""
    maker = judge.pairs.b.maker(wrong)
    result = None if maker is None else judge.results.get(maker.index)
    return result is not None and not result.adds and bool(judge.narrow_eps(result.a, result.b))


def _is_merged(judge: Judge, a: Call, b: Call) -> bool:
    """Is it a layer, or the adapter beside it, whose sum is that of a: has b the adapter merged into the layer?"""
    one, other = judge.pairs.a, judge.pairs.b
    sides = [run.by_call.get(call.index, []) for run, call in ((one, a), (other, b))]
    layers = [next((step for step in steps if step.weights), None) for steps in sides]
    return layers[0] is not None and layers[1] is not None and is_merged(one, layers[0], other, layers[1])


def _wrongly_replaced(
    judge: Judge, before: Slots, after: Slots, hooked: Slots | None
) -> Iterator[tuple[str, Value, Measures, float]]:
    """Yield the values of b that were replaced by different ones, by slot, with their measures and tolerance.

    ``hooked`` are the original values in a, if a hook of the user replaced them there as well.
    """
    run = judge.pairs.b
    wrong = dict(before.named())
    known = None if hooked is None else dict(hooked.named())
    within = Meter(run.trace, run.trace)
    for slot, put in after.named():
        other = wrong.get(slot)
        right, meter = (put, within) if known is None else (known.get(slot), judge.meter)
        if other is None or right is None or not is_another_tensor(other, put) or not comparable(right, other):
            continue
        measures = meter(right, other)
        limit = max(judge.clean, meter.tolerance(right, other))
        if measures.what != "unknown" and measures.error > limit:
            yield slot, other, measures, limit


def _upstream_nodes(run: StepList, value: Value) -> set[str]:
    """Return the ids of the nodes that a value comes from, back to replaced values."""
    nodes: set[str] = set()
    pending = [value.number]
    while pending:
        step = run.makers.get(pending.pop())
        if step is not None and step.node.id not in nodes:
            nodes.add(step.node.id)
            pending += [given.value.number for given in step.inputs]
    return nodes


def _input_row(judge: Judge, call: Call, slot: str, wrong: Value, measures: Measures, limit: float) -> Row:
    pairs, parent = judge.pairs, call.parent
    assert parent is not None
    partner = pairs.call_in_a(call)
    right = None if partner is None else dict(partner.inputs.named()).get(slot)
    name = call.path.rpartition(".")[2] or call.type
    where_a = "something else" if right is None else _source_of(pairs.a, right)
    where_b = _source_of(pairs.b, wrong)
    because = f"{name} is given {where_b} as {slot}, " + (f"{where_a} in a" if where_a != where_b else NOT_AS_IN_A)
    a = None if partner is None else _side(pairs.a.trace, partner, right)
    source = _calling_line(parent, call) or call.source
    sides = a, _side(pairs.b.trace, call, wrong)
    return _finding_row(judge, parent, call.type, "wiring", source, sides, measures, limit, because, call)


def _output_row(judge: Judge, call: Call, slot: str, wrong: Value, measures: Measures, limit: float) -> Row:
    pairs = judge.pairs
    partner, step = pairs.call_in_a(call), pairs.b.makers.get(wrong.number)
    right = None if partner is None else dict((partner.outputs or Outputs()).named()).get(slot)
    own = step is not None and step.call is call
    because = f"given the same, it returns another {slot or 'value'} than a's"
    a = None if partner is None else _side(pairs.a.trace, partner, right)
    sides = a, _side(pairs.b.trace, call, wrong)
    source = step.node.source if step is not None and own else call.source
    op = step.op if step is not None and own else None
    return _finding_row(judge, call, op, "values", source, sides, measures, limit, because, call)


def _finding_row(
    judge: Judge,
    place: Call,
    op: str | None,
    kind: Kind,
    source: str | None,
    sides: tuple[Side | None, Side],
    measures: Measures,
    limit: float,
    because: str,
    call: Call,
) -> Row:
    pair = judge.pairs.calls.get(call.index)
    matched_by: MatchedBy = "" if pair is None else pair.matched_by
    confidence = 1.0 if pair is None else pair.confidence
    indices = [step.index for inner in call.walk() for step in judge.pairs.b.by_call.get(inner.index, ())]
    return Row(
        path=place.path,
        op=op,
        kind=kind,
        source=source,
        a=sides[0],
        b=sides[1],
        verdict="adds",
        error=measures.error,
        tolerance=limit,
        measures=measures,
        how=matched_by,
        sure=confidence,
        because=because,
        position=max(indices, default=0),
        handed_over=True,
    )


def _source_of(run: StepList, value: Value) -> str:
    """Say where a value comes from: the call that returned it, or the step that made it."""
    for call in reversed(run.trace.calls):  # children before their parents
        if any(value.number == known.number for known in call.returned or call.outputs or ()) and call.parent:
            return f"what {call.path} returned"
    step = run.makers.get(value.number)
    if step is not None:
        return f"the result of {step.op}"
    return value.name or "what the model was given"


def _side(trace: TraceData, call: Call, value: Value | None) -> Side:
    return Side(call.path, call, call.type, None, call.source, value, network.network_of(trace).call_id(call))


def _calling_line(parent: Call, call: Call) -> str | None:
    """Return the line of the parent's code that makes the call."""
    body, graph = parent.body, parent.graph
    if body is None or graph is None:
        return None
    children = iter(body.calls)
    for step, source in zip(graph.ops, body.sources):
        if step.kind == "call_module" and next(children, None) == call.index:
            return source
    return None
