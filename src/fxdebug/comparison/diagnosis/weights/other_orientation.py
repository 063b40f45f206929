"""Tell that a product of b has a matrix as a's product takes it, where its own operation needs it the other way round.

``linear`` takes a matrix as outputs × inputs, a product with a matrix behind takes it as inputs × outputs.
"""

from __future__ import annotations

from fxdebug.comparison.diagnosis.region import view_chain
from fxdebug.comparison.diagnosis.weights.changed_weight import equal_sums
from fxdebug.comparison.diagnosis.weights.weight_slices import Weight, Weights
from fxdebug.comparison.steps import Step, StepList

_BEHIND = frozenset(["matmul", "mm", "addmm"])  # of these, the last operand is inputs × outputs
_TURNS = frozenset(["t", "T", "mT", "transpose", "permute", "swapaxes", "adjoint"])


def other_orientation(
    run_a: StepList, a: Step, run_b: StepList, b: Step, weights: tuple[Weights, Weights]
) -> str | None:
    """Return how the matrix of a product of b lies wrongly, where the two products take theirs in other layouts.

    Empty where each product has the same matrix as it takes it; ``None`` where nothing is known of the two.
    """
    of_a, of_b = _matrix(run_a, a, weights[0]), _matrix(run_b, b, weights[1])
    if of_a is None or of_b is None or of_a[1] == of_b[1]:
        return None
    one, other = of_a[0], of_b[0]
    ours = f"{one.name} of a" if one.name != other.name else "that of a"
    if set(one.sums) != {0, 1} or set(other.sums) != {0, 1}:
        return None
    if equal_sums(one.sums[0], other.sums[0]) and equal_sums(one.sums[1], other.sums[1]):
        return f"{other.name} lies as {ours} does: {a.op} takes it the other way round than {b.op}"
    dimensions = [at for at in (0, 1) if not equal_sums(one.sums[1 - at], other.sums[at])]
    if not dimensions:
        return ""
    if len(dimensions) == 1 and equal_sums(sorted(one.sums[1 - dimensions[0]]), sorted(other.sums[dimensions[0]])):
        what = ("rows", "columns")[dimensions[0]]
        return f"the {what} of {other.name} are those of {ours}, transposed, in another order"
    return None


def _matrix(run: StepList, step: Step, weights: Weights) -> tuple[Weight, bool] | None:
    """Return the matrix of a product with one weight, and whether it lies as inputs × outputs."""
    matrices = [given for given in step.weights if len(given.value.shape) == 2]
    if len(matrices) != 1 or not (step.name == "linear" or step.name in _BEHIND):
        return None
    given = matrices[0]
    if step.name in _BEHIND and given is not step.inputs[-1]:
        return None
    weight = weights.find(given.value.name or run.root(given.value).name or "")
    turns = sum(view.name in _TURNS for view in view_chain(run, given.value))
    return None if weight is None else (weight, (step.name in _BEHIND) != bool(turns % 2))
