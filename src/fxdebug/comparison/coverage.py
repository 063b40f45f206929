"""Say how much of two runs was compared, and what is missing before they may be called equal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fxdebug.comparison.diagnosis.evaluate_steps import Judge
from fxdebug.comparison.pairing.called_in_parts import CalledInParts
from fxdebug.comparison.pairing.name_mapping import is_ignored
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.pairing.returned_values import facing_outputs, last_call, returned_by
from fxdebug.comparison.result import Counts, Coverage, Row, Side
from fxdebug.comparison.rows import step_side
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import DIFFERENT, HALF
from fxdebug.data.calls import Call
from fxdebug.data.values import Value, shape_text
from fxdebug.operators.dtypes import EPS

MOST_NAMED = 3  # values that a sentence names


def coverage_of(judge: Judge, rows: Sequence[Row], outputs: Sequence[Row], globs: Sequence[str]) -> Coverage:
    """Count the calls, operations and returned values that were compared."""
    pairs, graphs = judge.pairs, judge.pairs.a.graphs and judge.pairs.b.graphs
    calls = sum(row.op is None and row.kind is None and row.measured and row.certain for row in rows)
    compared = [result for result in judge.results.values() if _is_certain(pairs, result.step)]
    operations = [result for result in compared if _computes(result.step)] if graphs else []
    known_a = {result.partner.index for result in judge.results.values()} | set(pairs.steps_of_a)
    known_b = set(judge.results) | set(pairs.steps)
    one, other = ([step for step in run.steps if graphs and _computes(step)] for run in (pairs.a, pairs.b))
    returned = [returned_by(run.trace.root) for run in (pairs.a, pairs.b)]
    shares = [_accounted_share(judge, rows, name, globs) for name in ("a", "b")]
    if max([share for share in shares if share is not None], default=1.0) < HALF:
        in_parts = CalledInParts(pairs, judge.meter).alike()
        shares = [_accounted_share(judge, rows, name, globs, alike) for name, alike in zip(("a", "b"), in_parts)]
    return Coverage(
        Counts(calls, len(pairs.a.trace.calls), len(pairs.b.trace.calls)),
        Counts(len(operations), len(one), len(other)),
        Counts(sum(row.measured for row in outputs), *(0 if side is None else len(side) for side in returned)),
        max([share for share in shares if share is not None], default=1.0),
        tuple([_side(step) for step in one if step.index not in known_a and step.call.index in pairs.calls_of_a]),
        tuple([_side(step) for step in other if step.index not in known_b and step.call.index in pairs.calls]),
        "".join(name for name, run in (("a", pairs.a), ("b", pairs.b)) if lacks_returned(run)),
    )


def lacks_returned(run: StepList) -> bool:
    """Is it not known what the model returned, although it did return? So it is in debug trees of transformers."""
    return run.trace.error is None and returned_by(run.trace.root) is None


def _computes(step: Step) -> bool:
    return bool(step.outputs) and not step.transparent and not step.unrecorded


def _is_certain(pairs: Pairs, step: Step) -> bool:
    pair = pairs.steps.get(step.index)
    return pair is None or pair.matched_by != "order"


def _side(step: Step) -> Side:
    side = step_side(step, next(iter(step.outputs), None))
    assert side is not None
    return side


def _accounted_share(
    judge: Judge, rows: Sequence[Row], name: str, globs: Sequence[str], in_parts: frozenset[int] = frozenset()
) -> float | None:
    """Return the share of a run's calls with results that are paired, or return a value that is certainly paired.

    ``in_parts`` are calls that one run makes on parts, which together return what one call of the other run does.

    Where nothing is a finding or ignored, pairs whose results are far apart account for nothing: no later value shows
    it, so that they are no evidence of equality. ``None`` for a run without such calls.
    """
    pairs = judge.pairs
    if globs or any(row.kind is not None for row in rows):  # what is ignored may make all that follows differ
        rows = ()
    unlike = set()
    for row in rows:
        side = row.a if name == "a" else row.b
        far = row.op is None and row.measured and row.error > max(DIFFERENT, row.tolerance)
        if side is not None and far and not _is_given_other_rows(judge, row):
            unlike.add(side.call.index)
    run, paired = (pairs.a, pairs.calls_of_a) if name == "a" else (pairs.b, pairs.calls)
    firm = pairs.is_firm_in_a if name == "a" else pairs.is_firm
    calls = [call for call in run.trace.calls if _has_results(call) and not is_ignored(call.path, globs)]
    accounted = [
        call
        for call in calls
        if call.index in in_parts
        or (call.index not in unlike and (call.index in paired or any(map(firm, call.outputs or ()))))
    ]
    return len(accounted) / len(calls) if calls else None


def _is_given_other_rows(judge: Judge, row: Row) -> bool:
    """Are two calls with the same weights given other rows, or the same rows in another order, as experts may be?

    One implementation gives an expert all rows, another one those that chose it: so what both return tells nothing.
    """
    if row.a is None or row.b is None or row.a.value is None or row.b.value is None:
        return False
    a, b = row.a.value, row.b.value
    sides = [(one, other) for one, other in zip(row.a.call.inputs, row.b.call.inputs) if one.dtype in EPS]
    if a.shape == b.shape:
        elsewhere = judge.meter.is_reordered(a, b) and all(judge.meter.is_reordered(*side) for side in sides)
    else:
        elsewhere = all(_differ_in_rows(one, other, (a, b)) for one, other in sides)
    return bool(sides) and elsewhere and _have_equal_weights(judge, row.b.call)


def _differ_in_rows(one: Value, other: Value, results: tuple[Value, Value]) -> bool:
    """Differ two values in the number of rows alone, by as many as what is made of them?"""
    rows = [math.prod(value.shape[:-1]) for value in (one, other, *results)]
    return bool(one.shape) and one.shape[-1:] == other.shape[-1:] and rows[:2] == rows[2:]


def _have_equal_weights(judge: Judge, call: Call) -> bool:
    """Do the steps in a call of b use weights that are equal to those of their counterparts?"""
    steps = [step for inner in call.walk() for step in judge.pairs.b.by_call.get(inner.index, ())]
    results = [judge.results.get(step.index) for step in steps if step.weights]
    weights = [given.value for step in steps for given in step.weights]
    return all(map(judge.pairs.is_firm, weights)) and all(
        result is None or result.differing_weights is None for result in results
    )


def _has_results(call: Call) -> bool:
    return call.outputs is not None and len(call.outputs) > 0


# What is missing -----------------------------------------------------------------------------------


def missing_in(judge: Judge, coverage: Coverage, outputs: Sequence[Row], compared: int) -> Iterator[str]:
    """Yield what keeps two runs without findings from being called equal, the most important first."""
    pairs = judge.pairs
    if not compared:
        yield "no call of one run has a counterpart with numbers in the other"
        return
    if pairs.a.trace.error is None and pairs.b.trace.error is None:
        yield from _missing_returned(pairs, coverage, outputs)
    # in right ports it is 0.9 and more, between different models in trees below 0.25
    if coverage.share < HALF:
        yield f"at most {coverage.share:.0%} of the calls have a counterpart in the other run"


def _missing_returned(pairs: Pairs, coverage: Coverage, outputs: Sequence[Row]) -> Iterator[str]:
    """Yield what is returned and was not compared."""
    found = {id(side.value) for row in outputs if row.measured for side in (row.a, row.b) if side is not None}
    one, other = (returned_by(run.trace.root) for run in (pairs.a, pairs.b))
    left_a, left_b = ([] if x is None else [(s, v) for s, v in x.named() if id(v) not in found] for x in (one, other))
    if coverage.stand_in:
        yield from _missing_in_tree(pairs, coverage, left_a, left_b, bool(found))
        return
    assert one is not None and other is not None
    facing = facing_outputs(one, other, pairs)
    facts = {id(side.b) for side in facing.sides}
    unmeasured = [(slot, value) for slot, value in left_b if id(value) in facts]
    if unmeasured:
        yield f"no numbers are known of what is returned: {_listed(unmeasured)}"
    # what the other run has, too, and only does not return, has a counterpart
    left_a = [(s, v) for s, v in left_a if any(v is x for _, x in facing.only_a) and not pairs.is_firm_in_a(v)]
    left_b = [(s, v) for s, v in left_b if any(v is x for _, x in facing.only_b) and not pairs.is_firm(v)]
    if not facing.sides:
        left_a, left_b = facing.only_a, facing.only_b
    if (left_a and left_b) or (not facing.sides and (left_a or left_b)):
        sides = [f"{name} returns {_listed(left)}" for name, left in (("a", left_a), ("b", left_b)) if left]
        yield f"{' and '.join(sides)}, without a counterpart in the other run"


def _missing_in_tree(
    pairs: Pairs, coverage: Coverage, left_a: list[tuple[str, Value]], left_b: list[tuple[str, Value]], found: bool
) -> Iterator[str]:
    """Yield what is missing where the file of a run does not have what the model returned."""
    for name, left, run in (("a", left_b, pairs.a), ("b", left_a, pairs.b)):
        if name not in coverage.stand_in:
            continue
        other = "b" if name == "a" else "a"
        why = f"the file of {name} does not have what the model returned"
        last = last_call(run)
        firm = pairs.is_firm_in_a if name == "a" else pairs.is_firm
        if left:
            yield f"{why}, and what {other} returned is not among the values it has: {_listed(left)}"
        elif last is None or not all(map(firm, last.outputs or ())):
            of = "" if last is None else f", of {last.path or last.type},"
            yield f"{why}, and the last value it has{of} is not in {other}"
        elif not found:
            yield f"{why}, and its last value is not the last one of {other}"


def _listed(values: Sequence[tuple[str, Value]]) -> str:
    names = [f"{slot or 'a tensor'} {shape_text(value.shape)}".rstrip() for slot, value in values]
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
