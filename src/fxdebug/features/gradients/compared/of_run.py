"""The gradients that were attached to a run, by parameter: their norms."""

from __future__ import annotations

from fxdebug.data.trace import TraceData
from fxdebug.features.gradients.compared.facing import OneGradient, Step
from fxdebug.features.shared.records.gradients import Reach

NORM = "grad.norm"


def step_of_run(trace: TraceData) -> Step | None:
    """Return the norms of the gradients of a run, ``None`` where none were attached to it."""
    taken = trace.taken.get(NORM)
    if taken is None:
        return None
    numbers = taken.numbers
    gradients = {}
    for parameter in trace.parameters:
        if parameter.kind != "parameter":
            continue
        norm = next((numbers[name] for name in parameter.names if name in numbers), None)
        reach: Reach = "trained" if parameter.requires_grad else "frozen"
        why = "" if reach == "trained" or norm is not None else reach
        gradients[parameter.name] = OneGradient(
            parameter.shape, parameter.dtype, None if norm is None else float(norm), why=why
        )
    return Step(trace.model, gradients)
