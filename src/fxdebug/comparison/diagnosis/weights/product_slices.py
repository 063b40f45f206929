"""The roles of the slices of a product: which of its columns become query, key and value.

A piece that is cut out of a result is a view of it: its offset and its strides say which columns it has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import FAR
from fxdebug.data.values import Value
from fxdebug.operators.names import BIAS_FIRST, family

Columns = tuple[int, ...]
ROLES = ("query", "key", "value")


def roles_of(run: StepList, products: Iterable[Step]) -> list[tuple[Step, Columns]]:
    """Return from which product and columns query, key and value are made; an empty list where that is not known."""
    makers = {step.index: step for step in products}
    operands = [value for step in _attention(run, makers.values()) for value in _factors(step)]
    known = [source for value in operands if (source := _source(run, value, makers)) is not None]
    roles = list(dict.fromkeys((step.index, columns) for step, columns in known))
    return [(makers[index], columns) for index, columns in roles] if len(roles) == len(ROLES) else []


def _attention(run: StepList, products: Iterable[Step]) -> list[Step]:
    """Return the products of two values that depend on some projections, in execution order."""
    found: dict[int, Step] = {}
    pending = [value for step in products for value in step.outputs]
    visited: set[int] = set()
    while pending and len(visited) < FAR:
        for user in run.users.get(run.root(pending.pop(0)).number, ()):
            if user.index in visited:
                continue
            visited.add(user.index)
            if _factors(user):
                found[user.index] = user
                pending += [] if user.name == "scaled_dot_product_attention" else user.outputs
            elif not (family(user.name) == "product" and user.weights):
                pending += user.outputs
    first = [found[index] for index in sorted(found)]
    whole = next((step for step in first if step.name == "scaled_dot_product_attention"), None)
    return [whole] if whole is not None else first


def _factors(step: Step) -> tuple[Value, ...]:
    data = tuple([given.value for given in step.data])
    if step.name == "scaled_dot_product_attention":
        return data[:3]
    if step.weights:
        return ()
    if step.name in BIAS_FIRST and len(data) == 3:
        return data[1:]
    is_product = step.name == "matmul" or (step.name == "einsum" and _sums_some(step))
    return data[:2] if is_product and len(data) == 2 else ()


def _sums_some(step: Step) -> bool:
    """Does an einsum sum over a letter? A state that grows by the outer product of a key and a value sums over none."""
    equation = next((text for text in step.constants if "->" in text), "")
    terms, _, kept = equation.replace(" ", "").strip("'").partition("->")
    return not equation or any(letter not in kept for letter in terms if letter.isalpha())


def _source(run: StepList, value: Value, makers: dict[int, Step]) -> tuple[Step, Columns] | None:
    """Return the one product that a value comes from, without another product on the way, and its columns there."""
    columns: dict[int, dict[int, None]] = {}
    pending, visited = [value], {value.number}
    while pending and len(visited) < FAR:
        at = pending.pop(0)
        home = next((step for step in makers.values() if at.storage is not None and _is_result(step, at)), None)
        if home is not None:
            taken = columns_of(home.outputs[0], at)
            if taken is None:
                return None
            columns.setdefault(home.index, {}).update(dict.fromkeys(taken))
            continue
        maker = run.makers.get(at.number)
        if maker is None:
            continue
        if maker.index in makers:
            whole = maker.outputs[0].shape[-1] if maker.outputs[0].shape else 0
            columns.setdefault(maker.index, {}).update(dict.fromkeys(range(whole)))
        elif not _factors(maker) and not (family(maker.name) == "product" and maker.weights):
            new = [given.value for given in maker.data if given.value.number not in visited]
            visited.update(given.number for given in new)
            pending += new
    if len(columns) != 1:
        return None
    index, taken_columns = next(iter(columns.items()))
    return makers[index], tuple(sorted(taken_columns))


def _is_result(step: Step, value: Value) -> bool:
    """Is a value the result of a step, or a view of it?"""
    return len(step.outputs) == 1 and value.storage == step.outputs[0].storage


def columns_of(whole: Value, piece: Value) -> Columns | None:
    """Return the columns of a matrix (its last dimension) that a view of it has, in the view's order.

    >>> whole = Value(0, (2, 6), "float32", "cpu", stride=(6, 1), storage=0)
    >>> columns_of(whole, Value(1, (2, 2), "float32", "cpu", stride=(6, 1), offset=2, storage=0))
    (2, 3)
    >>> columns_of(whole, Value(1, (2, 2, 1), "float32", "cpu", stride=(6, 3, 1), offset=1, storage=0))
    (1, 4)

    An empty one has none:

    >>> columns_of(Value(0, (2, 0), "float32", "cpu", stride=(1, 1), storage=0), whole) is None
    True
    """
    width = whole.shape[-1] if whole.shape else 0
    if not width or whole.stride is None or piece.stride is None or whole.stride[-1] != 1:
        return None
    if any(stride % width for stride, size in zip(whole.stride[:-1], whole.shape) if size > 1):
        return None
    within = [
        (size, stride)
        for size, stride in zip(piece.shape, piece.stride)
        if size > 1 and stride and (stride % width or width == 1)
    ]
    start = (piece.offset - whole.offset) % width
    places = [start + sum(index) for index in itertools.product(*(range(0, n * s, s) for n, s in within))]
    return tuple(places) if all(0 <= place < width for place in places) else None
