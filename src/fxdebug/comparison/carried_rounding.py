"""The rounding that values carry: one computed in float32 from bfloat16 is no more exact than bfloat16.

Under autocast, and wherever a model casts, dtypes narrower than those of weights and inputs come and go.
"""

from __future__ import annotations

from fxdebug.comparison.steps import StepList
from fxdebug.comparison.tolerance import eps_of, tolerance_of
from fxdebug.data.values import Value


class CarriedRounding:
    """The coarsest dtype on the way to each value of two runs."""

    def __init__(self, a: StepList, b: StepList) -> None:
        self._a, self._b = a, b
        self._coarsest = coarsest_upstream(a), coarsest_upstream(b)

    def tolerance(self, a: Value, b: Value) -> float:
        """Return the error that the rounding explains that both values carry: where only one does, it is an error."""
        dtypes = [
            coarsest.get(value.number) or coarsest.get(run.root(value).number) or value.dtype
            for run, coarsest, value in zip((self._a, self._b), self._coarsest, (a, b))
        ]
        return min(map(tolerance_of, dtypes))


def coarsest_upstream(run: StepList) -> dict[int, str]:
    """Return for each result of a run, by number, the coarsest dtype of it and of all that it was computed from."""
    coarsest: dict[int, str] = {}
    for step in run.steps:
        given = [coarsest.get(item.value.number, item.value.dtype) for item in step.inputs]
        for value in step.outputs:
            coarsest.setdefault(value.number, max((*given, value.dtype), key=eps_of))
    return coarsest
