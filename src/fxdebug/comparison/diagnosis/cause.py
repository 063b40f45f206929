"""The cause of an error, before it is a row: its kind, the call of b, and the step of either side."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fxdebug.comparison.constants import SYMMETRIC, differing_constants, number_in
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult, comparable
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.result import Kind, MatchedBy
from fxdebug.comparison.steps import Step
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import canonical

UNPAIRED = ", and nothing that could be paired says since when"  # at the end of a sentence that names no cause
SAME_INPUTS = "the same inputs give other values"  # it names the place alone, as the next one
SAME_OPERATIONS = "the same operations give other values"
BOTH_DREW = "random numbers were drawn: seed both runs alike"


@dataclass(frozen=True)
class Cause:
    """A cause of error. ``absorbable``: it is a finding only if a later result differs, too."""

    kind: Kind
    call: Call  # of b
    op: str | None
    because: str
    position: int
    measures: Measures
    error_in: float
    tolerance: float
    a: Step | None = None
    b: Step | None = None
    value_a: Value | None = None
    value_b: Value | None = None
    confidence: float = 1.0
    absorbable: bool = True
    matched_by: MatchedBy = ""  # how the steps were paired
    reordered: bool = False  # the elements are a's in other places, as a port may keep them
    is_weight_told: bool = False  # it is a weight, and how it differs is known: nothing is behind it
    regrouped: bool = False  # a part of a sum of the same terms in another order: no fault

    @property
    def surely_paired(self) -> bool:
        """Are the two steps certainly counterparts: in the same place of the code, or equal but for one difference?"""
        return self.matched_by in ("path", "mapping") or self.kind in ("constant", "weights")


def make_cause(
    judge: Judge,
    kind: Kind,
    call: Call,
    op: str | None,
    because: str,
    result: StepResult,
    *,
    step: Step | None = None,
    partner: Step | None = None,
    a: Value | None = None,
    b: Value | None = None,
    absorbable: bool = True,
) -> Cause:
    """Return the cause of a step's error: the step itself, or another ``step`` on the way to it.

    ``call`` and ``op`` say where it is; ``partner``, ``a`` and ``b`` default to those of ``result``.
    """
    measures = result.measures
    if a is not None and b is not None and comparable(a, b):
        measures = judge.meter(a, b)
    pair = judge.pairs.steps.get(result.step.index) or judge.pairs.values.get(judge.pairs.b.root(result.b).number)
    if (step or result.step).unrecorded and op == (step or result.step).op:
        # a piece of a call's code: its operation is not known; the class of the call stands for all of it
        at = step or result.step
        op = at.call.type if judge.pairs.b.graphs and not at.call.children else None
    return Cause(
        kind=kind,
        call=call,
        op=op,
        because=because,
        position=result.position,
        measures=measures,
        error_in=min(result.error_in, math.inf),
        tolerance=result.tolerance,
        a=partner or result.partner,
        b=step or result.step,
        value_a=a or result.a,
        value_b=b or result.b,
        confidence=0.8 if pair is None else pair.confidence,
        absorbable=absorbable,
        matched_by="values" if pair is None else pair.matched_by,
    )


def values_differ(judge: Judge, a: Value, b: Value) -> bool:
    """Do two values differ by more than the inputs of a step may?"""
    if not comparable(a, b):
        return False
    measures = judge.meter(a, b)
    limit = judge.clean_for(a, b) if a.dtype in EPS else 0.0
    return measures.what != "unknown" and measures.error > limit


LONG_LIST = " more in "  # in a sentence about a list that :func:`listed` cut


def listed(names: Iterable[object]) -> str:
    """Return the first few of some names as text."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")


def on_both_sides(a: str, b: str) -> str:
    """Say what stands on either side of a difference; one of them may be empty.

    >>> on_both_sides("0.5", "0.25"), on_both_sides("", "55.4")
    ('0.5 in a, 0.25 in b', '55.4 in b, and not in a')
    """
    if not a or not b:
        return f"{b} in b, and not in a" if b else f"{a} in a, and not in b"
    return f"{a} in a, {b} in b"


def differing_settings(a: Step, b: Step) -> tuple[list[str], list[str]]:
    """Return the constants in which two steps differ, as text: those of a, those of b.

    Dimensions of a transpose are equal, too, where one counts them from the front and the other from the end.
    """
    ends = [_from_the_end(step) for step in (a, b)]
    if None not in ends and ends[0] == ends[1]:
        return [], []
    return differing_constants(canonical(b.op), a.constants, b.constants)


def _from_the_end(step: Step) -> set[int] | None:
    """Return the two dimensions that a step exchanges, counted from the end; ``None`` for other steps."""
    if canonical(step.op) not in SYMMETRIC or not step.data or len(step.constants) != 2:
        return None
    dims = [number_in(text.rpartition("=")[2]) for text in step.constants]
    rank = len(step.data[0].value.shape)
    return {int(dim) - rank * (dim >= 0) for dim in dims if dim is not None}
