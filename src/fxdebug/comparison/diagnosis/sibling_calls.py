"""Find how one call of b differs from other calls of its class, where a has no steps to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fxdebug.comparison.diagnosis.cause import Cause, differing_settings, listed
from fxdebug.comparison.diagnosis.region import Divergence
from fxdebug.comparison.diagnosis.weights.weight_slices import numberless
from fxdebug.comparison.pairing.align import aligned_pairs
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call

_SIZED_BY_DATA = frozenset(["split", "split_with_sizes"])  # as the rows of each expert
MOST_DIFFERENCES = 4  # beyond which two calls are no siblings


class UnlikeSiblings(NamedTuple):
    """A difference between a call and its sibling: the operation, and a step of the call where it has one."""

    kind: Kind
    op: str
    step: Step
    because: str


def sibling_cause(
    divergence: Divergence, partner: Step | None, fits: Callable[[Call], bool] | None = None
) -> Cause | None:
    """Return how a call in b's region differs from its siblings; ``fits`` is that of :func:`differs_from_siblings`."""
    unlike = differs_from_siblings(divergence.judge.pairs.b, divergence.in_b.computing, fits)
    if unlike is None or (unlike.kind == "constant" and _has_alike(divergence.in_a.computing, unlike.step)):
        return None
    if differs_from_siblings(divergence.judge.pairs.a, divergence.in_a.computing) is not None:
        return None  # so they do in a: every second layer has windows that are shifted
    step = unlike.step
    return divergence.cause_in(unlike.kind, step.call, unlike.op, unlike.because, step=step, partner=partner)


def differs_from_siblings(
    run: StepList, steps: Sequence[Step], fits: Callable[[Call], bool] | None = None
) -> UnlikeSiblings | None:
    """Return how the innermost call around some steps differs, in these steps, from another call of its class.

    ``fits`` says with which calls it is compared; without it, with all of its class. A call that most of these are
    like is not the one that differs.
    """
    indices = {step.index for step in steps}
    visited: set[int] = set()
    for step in steps:
        call: Call | None = step.call
        while call is not None and call.parent is not None and call.index not in visited:
            visited.add(call.index)
            siblings = [s for s in run.trace.calls if _are_siblings(s, call) and (fits is None or fits(s))]
            differences = {s.index: _first_difference(run, s, call) for s in siblings}
            unlike = [s for s in siblings if differences[s.index] is not None]
            if not _is_like_most(run, call, siblings, unlike):
                for sibling in unlike:
                    difference = differences[sibling.index]
                    if difference is not None and difference.step.index in indices:
                        return difference
            call = call.parent
    return None


def _is_like_most(run: StepList, call: Call, siblings: Sequence[Call], unlike: Sequence[Call]) -> bool:
    """Are there at least as many modules whose calls do what a call does as there are others?

    A call counts itself where another one does the same: every second layer may differ from those beside it.
    """
    names = [[s.name for s in run.by_call.get(c.index, ())] for c in (call, *siblings)]
    alike = {s.path for s, own in zip(siblings, names[1:]) if own == names[0] and s not in unlike} - {call.path}
    return len(alike) + bool(alike) >= len({s.path for s in unlike})


def _has_alike(steps: Sequence[Step], step: Step) -> bool:
    """Is there the same operation with the same constants among some steps?"""
    return any(other.name == step.name and not any(differing_settings(other, step)) for other in steps)


def _are_siblings(a: Call, b: Call) -> bool:
    """Are they calls of one class with as many calls in them? A norm or a product alone is one in its place only."""
    if a is b or a.type != b.type or len(a.children) != len(b.children):
        return False
    return bool(a.children) or numberless(f"{a.path}.") == numberless(f"{b.path}.")


def _first_difference(run: StepList, sibling: Call, call: Call) -> UnlikeSiblings | None:
    """Return the first difference between the own steps of two calls."""
    one, other = ([s for s in run.by_call.get(c.index, ()) if not s.transparent] for c in (sibling, call))
    same = aligned_pairs(one, other, lambda x, y: float(x.name == y.name), lambda step: step.name)
    left, right = {x.index for x, _ in same}, {y.index for _, y in same}
    missing, extra = [x for x in one if x.index not in left], [y for y in other if y.index not in right]
    known = [(x, y) for x, y in same if y.name not in _SIZED_BY_DATA]
    changed = [(y, *settings) for x, y in known if all(settings := differing_settings(x, y))]
    if not same or not 0 < len(missing) + len(extra) + len(changed) <= MOST_DIFFERENCES:
        return None
    if changed:
        step, ours, theirs = changed[0]
        because = f"{listed(ours)} in {sibling.path}, {listed(theirs)} in {call.path}"
        return UnlikeSiblings("constant", step.op, step, because)
    if extra:
        step = extra[0]
        return UnlikeSiblings("extra", step.op, step, f"{step.op} has no counterpart in {sibling.path}")
    after = next((y for x, y in same if x.index > missing[0].index), same[-1][1])
    because = f"{missing[0].op} of {sibling.path} has no counterpart in {call.path}"
    return UnlikeSiblings("missing", missing[0].op, after, because)
