"""Calls of one class in b: what one does unlike its peers, where a has no steps to hold it against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fxdebug.comparison.diagnosis.cause import differing_settings, listed
from fxdebug.comparison.pairing.align import aligned_pairs
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call

MOST_DIFFERENCES = 4  # differences beyond which two calls are no peers


class UnlikeSiblings(NamedTuple):
    """What a call does otherwise: the operation, and a step of it where it has one."""

    kind: Kind
    op: str
    step: Step
    because: str


def differs_from_siblings(
    run: StepList, steps: Sequence[Step], fits: Callable[[Call], bool] | None = None
) -> UnlikeSiblings | None:
    """What the innermost of the calls around some steps does otherwise, in these steps, than another of its class.

    ``fits`` says which calls are held against it, all without it.
    """
    within = {step.index for step in steps}
    seen: set[int] = set()
    for step in steps:
        call: Call | None = step.call
        while call is not None and call.parent is not None and call.index not in seen:
            seen.add(call.index)
            for peer in run.trace.calls:
                if _are_siblings(peer, call) and (fits is None or fits(peer)):
                    found = _first_difference(run, peer, call)
                    if found is not None and found.step.index in within:
                        return found
            call = call.parent
    return None


def _are_siblings(a: Call, b: Call) -> bool:
    return a is not b and a.type == b.type and len(a.children) == len(b.children)


def _first_difference(run: StepList, peer: Call, call: Call) -> UnlikeSiblings | None:
    """The first difference between what two calls do themselves."""
    one, other = ([s for s in run.by_call.get(c.index, ()) if not s.transparent] for c in (peer, call))
    same = aligned_pairs(one, other, lambda x, y: float(x.name == y.name), lambda step: step.name)
    left, right = {x.index for x, _ in same}, {y.index for _, y in same}
    gone_steps, new_steps = [x for x in one if x.index not in left], [y for y in other if y.index not in right]
    otherwise = [(y, *settings) for x, y in same if all(settings := differing_settings(x, y))]
    if not same or not 0 < len(gone_steps) + len(new_steps) + len(otherwise) <= MOST_DIFFERENCES:
        return None
    if otherwise:
        step, gone, new = otherwise[0]
        return UnlikeSiblings("constant", step.op, step, f"{listed(gone)} in {peer.path}, {listed(new)} in {call.path}")
    if new_steps:
        step = new_steps[0]
        return UnlikeSiblings("extra", step.op, step, f"{step.op} has no counterpart in {peer.path}")
    after = next((y for x, y in same if x.index > gone_steps[0].index), same[-1][1])
    return UnlikeSiblings(
        "missing", gone_steps[0].op, after, f"{gone_steps[0].op} of {peer.path} has no counterpart in {call.path}"
    )
