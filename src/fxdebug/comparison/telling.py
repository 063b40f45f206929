"""Which one of several steps to name."""

from __future__ import annotations

from fxdebug.comparison.opnames import ACTIVATIONS
from fxdebug.comparison.regions import common
from fxdebug.comparison.steps import Step
from fxdebug.data.calls import Call
from fxdebug.operators.dtypes import EPS


def computes(step: Step) -> bool:
    """Does it work on floating numbers that it is given? Masks, positions and constants are made by others."""
    return any(v.dtype in EPS for v in step.outputs) and any(g.value.dtype in EPS for g in step.inputs)


def telling(steps: list[Step], gone: list[Step] | None = None) -> Step:
    """The step to name among several: an activation, else the last that computes, which made what differs.

    Where a has a whole call or a whole recurrence in one step, no single one of many stands out: of the first call
    in b that has some of it, the last step.
    """
    computing = [step for step in steps if computes(step)] or steps
    if not all(small(step) for step in gone or ()):
        around = common(step.call for step in computing)
        if any(step.loose for step in gone or ()) and computing[0].call is not around:
            computing = [s for s in computing if _below(s.call, around) is _below(computing[0].call, around)]
        return computing[-1]
    return next((step for step in computing if step.name in ACTIVATIONS), computing[-1])


def _below(call: Call, top: Call | None) -> Call:
    """The call right below another one that a call is in."""
    while call.parent is not None and call.parent is not top:
        call = call.parent
    return call


def small(step: Step) -> bool:
    """Is it a step of its own, not a recurrence or a call whose inside nobody knows?"""
    return not step.loose and len(step.weights) <= 2
