"""Pair what two calls return: by place, then by name, by value and by shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import StepList
from fxdebug.data.calls import Call
from fxdebug.data.values import Outputs, Value
from fxdebug.operators.dtypes import EPS

Slots = list[tuple[str, Value]]

_LAST_NAME = re.compile(r"([A-Za-z_]\w*)\W*$")  # of a slot such as `output.logits`; `[0]` has none


class FacingValue(NamedTuple):
    """A returned value of a beside one of b. ``slot_a`` and ``slot`` are their places in what each returned."""

    slot_a: str
    slot: str
    a: Value
    b: Value


class FacingOutputs(NamedTuple):
    """The values that two calls return, side by side, and those that remain on either side."""

    sides: list[FacingValue]
    only_a: Slots
    only_b: Slots


def returned_by(call: Call) -> Outputs | None:
    """Return what the caller of a call got: what a hook made of the result, where one did."""
    return call.outputs if call.returned is None else call.returned


def facing_outputs(a: Outputs, b: Outputs, pairs: Pairs | None = None) -> FacingOutputs:
    """Return the outputs of two calls side by side, in the order of b.

    Values in one slot are a pair; a position of a tuple counts as a slot where the sizes agree, too. Then follow the
    same names in other containers, values that ``pairs`` has paired, equal shapes and equal sizes in order, and what
    is left in one slot or alone on both sides.
    """
    one, other = list(a.named()), list(b.named())
    found: list[FacingValue] = []
    if len(one) == len(other) == 1:
        found = [FacingValue(*_joined(one[0], other[0]))]
        one, other = [], []
    for fits in _ways(pairs):
        for right in list(other):
            left = next((left for left in one if fits(left, right)), None)
            if left is not None:
                found.append(FacingValue(*_joined(left, right)))
                one.remove(left)
                other.remove(right)
    if len(one) == len(other) == 1:
        found.append(FacingValue(*_joined(one[0], other[0])))
        one, other = [], []
    places = {id(value): place for place, value in enumerate(b)}
    return FacingOutputs(sorted(found, key=lambda side: places[id(side.b)]), one, other)


def _joined(left: tuple[str, Value], right: tuple[str, Value]) -> tuple[str, str, Value, Value]:
    return left[0], right[0], left[1], right[1]


def _ways(pairs: Pairs | None) -> Iterator[Callable[[tuple[str, Value], tuple[str, Value]], bool]]:
    """Yield the ways in which two outputs, each with its slot, may belong together: the surest first."""
    yield lambda left, right: left[0] == right[0] and (_is_named(left[0]) or left[1].numel == right[1].numel)
    yield lambda left, right: _is_named(left[0]) and _last_name(left[0]) == _last_name(right[0])
    if pairs is not None:
        yield lambda left, right: pairs.are_paired(left[1], right[1]) and pairs.is_firm(right[1])
    yield lambda left, right: left[1].shape == right[1].shape and _alike(left[1], right[1])
    yield lambda left, right: left[1].numel == right[1].numel and _alike(left[1], right[1])
    yield lambda left, right: left[0] == right[0]


def _is_named(slot: str) -> bool:
    return _last_name(slot) is not None


def _last_name(slot: str) -> str | None:
    match = _LAST_NAME.search(slot)
    return None if match is None else match[1].lower()


def _alike(a: Value, b: Value) -> bool:
    return (a.dtype in EPS) == (b.dtype in EPS)


def facing_returned(pairs: Pairs) -> list[FacingValue]:
    """Return what two models return, side by side.

    A debug tree of transformers does not have what a model with modules returned. Then each value that the other model
    returned faces the value of the tree that is certainly the same one, and what the last calls returned faces each
    other where both runs are such trees. A value that only b returns may face an inner value of a.
    """
    one, other = returned_by(pairs.a.trace.root), returned_by(pairs.b.trace.root)
    if pairs.a.trace.error is not None or pairs.b.trace.error is not None:
        return []
    if one is None and other is None:
        last_a, last_b = last_call(pairs.a), last_call(pairs.b)
        a, b = (() if last is None or last.outputs is None else last.outputs for last in (last_a, last_b))
        return [FacingValue("", "", x, y) for y in b for x in a if pairs.are_paired(x, y) and pairs.is_firm(y)]
    if other is None:
        assert one is not None
        own = [(slot, value) for slot, value in one.named() if not is_made_after_forward(pairs.a, value)]
        inner = [(slot, value, pairs.value_in_b(value)) for slot, value in own if pairs.is_firm_in_a(value)]
        return [FacingValue(slot, slot, value, partner) for slot, value, partner in inner if partner is not None]
    facing = facing_outputs(one or Outputs(), other, pairs)
    own = [(slot, value) for slot, value in facing.only_b if not is_made_after_forward(pairs.b, value)]
    more = [(slot, value, pairs.value_in_a(value)) for slot, value in own if pairs.is_firm(value)]
    return [*facing.sides, *(FacingValue("", slot, partner, b) for slot, b, partner in more if partner is not None)]


def is_made_after_forward(run: StepList, value: Value) -> bool:
    """Was a returned value made by a hook of the model or by its ``__call__``, when its forward was over?"""
    root = run.trace.root
    known = {own.number for own in (*(root.outputs or ()), *root.inputs, *(root.given or ()))}
    return root.returned is not None and value.name is None and value.number not in {*known, *run.makers}


def returning_call(run: StepList, value: Value) -> Call:
    """Return the call to name for a returned value: the root, or the inner call that made its counterpart."""
    root = run.trace.root
    if any(value is own for own in returned_by(root) or ()):
        return root
    maker = run.maker(value)
    return root if maker is None else maker.call


def last_call(run: StepList) -> Call | None:
    """Return the call that returned last among those whose results the trace has."""
    calls = [call for call in run.trace.calls if call.outputs is not None and len(call.outputs)]
    return max(calls, key=lambda call: (-1 if call.finished is None else call.finished, call.index), default=None)
