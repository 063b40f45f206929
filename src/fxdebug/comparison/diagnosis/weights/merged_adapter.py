"""A layer of a with an adapter beside it (LoRA), whose product b has merged into its weight: with which factor?

Of two factors that are multiplied the sums of rows and columns give the sum of all elements of their product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fxdebug.comparison.constants import number_in
from fxdebug.comparison.diagnosis.weights.weight_slices import Weight, Weights
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import CLOSE, SAME_SUM, UNSURE, VIEWS
from fxdebug.data.values import Value
from fxdebug.operators.names import role


@dataclass(frozen=True)
class _Adapter:
    """An addition to a product with weights: ``scale`` × ``up`` @ ``down`` of the same input."""

    down: Step
    up: Step
    scale: float


def wrongly_merged(run_a: StepList, a: Step, run_b: StepList, b: Step, weights: tuple[Weights, Weights]) -> str | None:
    """Return what is wrong with a weight or bias of b that has the adapter beside that of a merged in.

    ``None`` where there is no adapter, and where it is merged in as it should be: not at all where b has it, too.
    """
    adapter, kept = _adapter_beside(run_a, a), _adapter_beside(run_b, b)
    if adapter is None:
        return None
    scale = adapter.scale
    for theirs, ours, what, factor, limit in _merged(a, b, adapter, weights):
        if abs(factor - (scale if kept is None else 0.0)) <= limit:
            continue
        if kept is not None:
            if abs(factor - scale) <= limit and not _is_zero(weights[1], kept):
                return f"{theirs} has {scale:.4g} × {what} of a merged in, and b adds it once more"
        elif abs(factor) <= limit:
            return f"{theirs} is {ours} of a without {scale:.4g} × {what}, which a adds: it is not merged in"
        elif any(abs(factor - likely) <= limit for likely in (1.0, -scale, scale**2, 2 * scale, 1 / scale)):
            return f"{theirs} is {ours} of a + {factor:.4g} × {what}, and a adds {scale:.4g} × it"
        else:
            return f"{theirs} is not {ours} of a + {scale:.4g} × {what}"
    return None


def is_merged(run_a: StepList, a: Step, run_b: StepList, b: Step) -> bool:
    """Is it a layer of b, or the adapter beside it, with the adapter of a merged in and its own at zero?"""
    ours, theirs = _with_adapter(run_a, a), _with_adapter(run_b, b)
    if ours is None or theirs is None:
        return False
    weights = Weights(run_a.trace), Weights(run_b.trace)
    found = list(_merged(ours[0], theirs[0], ours[1], weights))
    right = all(abs(factor - ours[1].scale) <= limit for *_, factor, limit in found)
    return bool(found) and right and _is_zero(weights[1], theirs[1])


def _merged(
    a: Step, b: Step, adapter: _Adapter, weights: tuple[Weights, Weights]
) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield the weight and the bias of b with those of a, what a's adapter adds to them, with which factor b has it.

    The last number is how much the factor may be off.
    """
    for parameter in ("weight", "bias"):
        ours, theirs = _find(weights[0], a, parameter), _find(weights[1], b, parameter)
        if ours is None or theirs is None or ours.parameter.shape != theirs.parameter.shape:
            continue
        change = [x - y for x, y in zip(theirs.sums[0], ours.sums[0])]
        size = math.sqrt(math.fsum(x * x for x in theirs.sums[0]))
        if parameter == "bias":
            up = _find(weights[0], adapter.up, "bias")
            product, what = ([], "") if up is None else (list(up.sums[0]), up.name)
        else:
            change = [math.fsum(change)]
            product, what = _product(weights[0], adapter)
        square = math.fsum(x * x for x in product)
        unsure = SAME_SUM * size / math.sqrt(square) if square else math.inf
        if unsure <= UNSURE:
            factor = math.fsum(x * y for x, y in zip(change, product)) / square
            yield theirs.name, ours.name, what, factor, max(10 * CLOSE * max(abs(adapter.scale), 1.0), 2 * unsure)


def _is_zero(weights: Weights, adapter: _Adapter) -> bool:
    up = _find(weights, adapter.up, "weight")
    return up is not None and up.is_zero


def _with_adapter(run: StepList, step: Step) -> tuple[Step, _Adapter] | None:
    """Return a layer with the adapter beside it, for the layer's step or the adapter's last product."""
    adapter = _adapter_beside(run, step)
    if adapter is not None:
        return step, adapter
    last = step
    for _ in range(VIEWS):
        users = run.users.get(run.root(step.outputs[0]).number, ()) if step.outputs else ()
        if len(users) != 1:
            return None
        step = users[0]
        if role(step.name) == "add":
            layers = [run.maker(one.value) for one in step.data]
            found = [(layer, _adapter_beside(run, layer)) for layer in layers if layer is not None]
            return next(((layer, one) for layer, one in found if one is not None and one.up is last), None)
        if role(step.name) != "mul" and step.name != "dropout" and not step.transparent:
            return None
    return None


def _adapter_beside(run: StepList, step: Step) -> _Adapter | None:
    """Return the adapter whose result is added to that of a product with weights of the same input."""
    if not step.weights or not step.data or not step.outputs:
        return None
    made, given = run.root(step.outputs[0]).number, run.root(step.data[0].value).number
    for user in run.users.get(made, ()):
        if role(user.name) != "add" or len(user.data) != 2:
            continue
        for one in user.data:
            if run.root(one.value).number != made:
                adapter = _adapter(run, one.value, given)
                if adapter is not None:
                    return adapter
    return None


def _adapter(run: StepList, value: Value, given: int) -> _Adapter | None:
    products: list[Step] = []
    scale = 1.0
    for _ in range(VIEWS):
        maker = run.maker(value)
        if maker is None or len(maker.data) != 1:
            return None
        if maker.weights:
            products.append(maker)
        elif role(maker.name) == "mul":
            numbers = [x for text in maker.constants if (x := number_in(text.rpartition("=")[2])) is not None]
            if len(numbers) != 1:
                return None
            scale *= numbers[0]
        elif maker.name != "dropout" and not maker.transparent:
            return None
        value = maker.data[0].value
        if len(products) == 2 and run.root(value).number == given:
            return _Adapter(products[1], products[0], scale)
    return None


def _product(weights: Weights, adapter: _Adapter) -> tuple[list[float], str]:
    """Return the sum of all elements of the product of an adapter's weights, and what it is called; none if unknown."""
    up, down = _find(weights, adapter.up, "weight"), _find(weights, adapter.down, "weight")
    if up is None or down is None or 1 not in up.sums or len(up.sums[1]) != len(down.sums[0]):
        return [], ""
    return [math.fsum(x * y for x, y in zip(up.sums[1], down.sums[0]))], f"{up.name} @ {down.name}"


def _find(weights: Weights, step: Step, parameter: str) -> Weight | None:
    place = {"weight": "args[1]", "bias": "args[2]"}[parameter]
    named = next((given.value.name for given in step.weights if given.argument in (place, parameter)), None)
    found = None if named is None else weights.find(named)
    return None if found is None or 0 not in found.sums else found
