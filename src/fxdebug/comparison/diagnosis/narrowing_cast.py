"""A cast of b to a narrower dtype on the way to a value, where a has none: the elements are rounded, and cast back."""

from __future__ import annotations

from fxdebug.comparison.diagnosis.region import view_chain
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS


def narrowing_cast(pairs: Pairs, a: Value, b: Value) -> tuple[Step, str] | None:
    """Return the cast among the views before ``b`` that rounds it and that ``a`` does not have, and a sentence."""
    if _narrowing(pairs.a, a) is not None:
        return None
    step = _narrowing(pairs.b, b)
    return None if step is None else (step, f"{pairs.b.root(b).dtype} becomes {step.outputs[0].dtype}")


def _narrowing(run: StepList, value: Value) -> Step | None:
    before = EPS.get(run.root(value).dtype, 1.0)
    chain = view_chain(run, value)
    return next((s for s in chain if len(s.outputs) == 1 and EPS.get(s.outputs[0].dtype, 0.0) > before), None)
