"""Pair by names: calls of one path and number, and in their bodies the operations in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeAlias

from fxdebug.comparison.facing_parts import FacingParts
from fxdebug.comparison.pairing.align import aligned_pairs
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import MatchedBy
from fxdebug.comparison.steps import Step, StepList, interchangeable
from fxdebug.comparison.tolerance import same_numbers
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import number_kind
from fxdebug.operators.names import op_of_module
from fxdebug.query import network

UNKNOWN_CLASS = "Module"  # stands for a class that the file does not name


def pair_by_path(pairs: Pairs, facing: FacingParts | None = None) -> None:
    """Pair calls and weights of the same name (after the user's mapping of a's names), and the inputs of the runs.

    ``facing``: one run may call some modules once for each of several inputs, of which the other run has fewer; calls
    that are given the same numbers are pairs then, and so is what calls of one name and number are given.
    """
    for_each = facing is not None and facing.by == "list"
    a, b = pairs.a, pairs.b
    _pair_inputs(pairs)
    _pair_named_weights(pairs)
    if for_each:
        _pair_by_inputs(pairs)
    known = {(a.path(call), call.number): call for call in reversed(a.trace.calls)}
    for call in b.trace.calls:
        other = known.get((call.path, call.number))
        if call.parent_index is None:
            other = a.trace.root
        if other is None or not _may_be_same_call(other, call):
            continue
        matched_by: MatchedBy = "mapping" if other.path in a.renamed_paths else "path"
        pairs.add_call(other, call, matched_by, 1.0)
    if facing is not None and for_each:
        _pair_given(pairs, facing)
    for call in b.trace.calls:
        pair = pairs.calls.get(call.index)
        if pair is not None:
            _name_by_other_class(pairs, a.trace.calls[pair.a], call)
            _pair_equal_bodies(pairs, a.trace.calls[pair.a], call, pair.matched_by)


def _pair_by_inputs(pairs: Pairs) -> None:
    of_a, of_b = (Counter(run.path(call) for call in run.trace.calls) for run in (pairs.a, pairs.b))
    for call in pairs.b.trace.calls:
        given = next(iter(call.inputs), None)
        if given is None or call.parent_index is None or of_a[call.path] == of_b[call.path]:
            continue
        for other in pairs.a.trace.calls:
            own = next(iter(other.inputs), None) if pairs.a.path(other) == call.path else None
            if own is None or other.index in pairs.calls_of_a or own.shape != given.shape:
                continue
            if _same_content(("", own), ("", given)):
                pairs.add_call(other, call, "path", 1.0)
                break


def _pair_given(pairs: Pairs, facing: FacingParts) -> None:
    for call in pairs.b.trace.calls:
        other = pairs.call_in_a(call)
        for a, b in zip(other.inputs, call.inputs) if other is not None and call.parent_index is not None else ():
            if a.shape == b.shape or facing.roles(a.shape, b.shape) is not None:
                pairs.add_value_and_makers(a, b, "path", 1.0)


def _may_be_same_call(a: Call, b: Call) -> bool:
    """May two calls of one path be a pair? Modules of different classes may not if their name is only a number."""
    if a.type == b.type or a.parent_index is None:
        return True
    return not a.path.rpartition(".")[2].isdigit()


def _pair_inputs(pairs: Pairs) -> None:
    """Pair the tensors that the runs were given, by the surest sign first: two models may order them differently.

    The signs are the name of the argument, equal numbers, the position, and the order among those of one shape.
    """
    one, other = dict(pairs.a.trace.root.inputs.named()), dict(pairs.b.trace.root.inputs.named())
    for sign, matched_by, confidence in _SIGNS_OF_INPUT:
        for slot, value in list(other.items()):
            found = next((known for known in one if sign((known, one[known]), (slot, value))), None)
            if found is not None:
                pairs.add_value(one.pop(found), other.pop(slot), matched_by, confidence)


_Slot: TypeAlias = tuple[str, Value]


def _same_name(a: _Slot, b: _Slot) -> bool:
    return a[0] == b[0] and not a[0].startswith("args[")


def _same_content(a: _Slot, b: _Slot) -> bool:
    known = bool(a[1].numel) and a[1].numel == b[1].numel
    return known and (a[1].digest == b[1].digest is not None or same_numbers(a[1].stats, b[1].stats))


def _same_position(a: _Slot, b: _Slot) -> bool:
    return a[0] == b[0] and _alike(a, b)


def _same_shape(a: _Slot, b: _Slot) -> bool:
    return a[1].shape == b[1].shape and a[1].dtype == b[1].dtype


def _alike(a: _Slot, b: _Slot) -> bool:
    return a[1].shape == b[1].shape and number_kind(a[1].dtype) == number_kind(b[1].dtype)


def _same_slot(a: _Slot, b: _Slot) -> bool:
    return a[0] == b[0]


_SIGNS_OF_INPUT: tuple[tuple[Callable[[_Slot, _Slot], bool], MatchedBy, float], ...] = (
    (_same_name, "path", 1.0),
    (_same_content, "values", 0.95),
    (_same_position, "path", 1.0),
    (_same_shape, "order", 0.8),
    (_alike, "order", 0.8),
    (_same_slot, "path", 1.0),
)


def _pair_named_weights(pairs: Pairs) -> None:
    """Pair parameters and buffers of one name, the first value of each with the first."""
    named: dict[str, list[Value]] = defaultdict(list)
    for value in pairs.a.values.values():
        if value.name is not None:
            named[renamed(pairs.a, value.name)].append(value)
    for value in pairs.b.values.values():
        if value.name is not None and named.get(value.name):
            pairs.add_value(named[value.name].pop(0), value, "path", 1.0)


def renamed(run: StepList, name: str) -> str:
    """Return the name that the other side has for a weight, where a mapping says so."""
    path, dot, leaf = name.rpartition(".")
    return f"{run.renamed_paths[path]}{dot}{leaf}" if path in run.renamed_paths else name


# Bodies ------------------------------------------------------------------------------------------


class _BodyItem(NamedTuple):
    """An operation or a call in a body."""

    step: Step | None
    call: Call | None
    name: str

    @property
    def outputs(self) -> tuple[Value, ...]:
        if self.step is not None:
            return self.step.outputs or self.step.passed_through
        return () if self.call is None else tuple(self.call.outputs or ())


def name_unknown_classes(pairs: Pairs) -> None:
    """Name the steps of all paired calls of unknown class by the other's class."""
    for index, pair in pairs.calls.items():
        _name_by_other_class(pairs, pairs.a.trace.calls[pair.a], pairs.b.trace.calls[index])


def _name_by_other_class(pairs: Pairs, a: Call, b: Call) -> None:
    """Name the steps of a call of unknown class by the other's class: transformers' debugger writes no classes."""
    for run, call, type in ((pairs.a, a, b.type), (pairs.b, b, a.type)):
        for step in run.by_call.get(call.index, ()) if call.type == UNKNOWN_CLASS else ():
            step.name = op_of_module(type)


def _pair_equal_bodies(pairs: Pairs, a: Call, b: Call, matched_by: MatchedBy) -> None:
    """Pair the operations of two bodies one by one, if the bodies have the same operations and calls in order."""
    one, other = _body_items(pairs.a, a), _body_items(pairs.b, b)
    if [_item_key(item) for item in one] == [_item_key(item) for item in other]:
        for left, right in zip(one, other):
            if left.step is not None and right.step is not None:
                pairs.add_step(left.step, right.step, matched_by, 1.0)


def pair_bodies(pairs: Pairs) -> None:
    """Pair the remaining operations in the bodies of paired calls in order, where the bodies differ a little."""
    for call in pairs.b.trace.calls:
        pair = pairs.calls.get(call.index)
        if pair is None:
            continue
        one, other = _body_items(pairs.a, pairs.a.trace.calls[pair.a]), _body_items(pairs.b, call)
        if all(item.step is None or item.step.index in pairs.steps for item in other):
            continue
        for left, right in aligned_pairs(one, other, lambda x, y: _score(pairs, x, y), _item_key):
            if left.step is not None and right.step is not None:
                pairs.add_step(left.step, right.step, pair.matched_by, 0.95)


def _body_items(run: StepList, call: Call) -> list[_BodyItem]:
    net = network.network_of(run.trace)
    body, call_id, steps = net.bodies[call.index], net.call_id(call), net.steps(call)
    if body is None or not steps or not run.graphs:
        return [_BodyItem(step, None, step.name) for step in run.by_call.get(call.index, ())]
    items: list[_BodyItem] = []
    children = iter(body.calls)
    for step in steps:
        if step.kind == "call_module":
            child = run.trace.calls[next(children)]
            items.append(_BodyItem(None, child, run.path(child)))
        elif f"{call_id}/{step.name}" in run.by_node:
            own = run.by_node[f"{call_id}/{step.name}"]
            items.append(_BodyItem(own, None, own.name))
    return items


def _item_key(item: _BodyItem) -> Hashable:
    return (item.name, item.call is None, tuple([value.shape for value in item.outputs]))


def _score(pairs: Pairs, a: _BodyItem, b: _BodyItem) -> float:
    """Return how well two items of two bodies fit; a high score keeps earlier pairs together."""
    if a.call is not None and b.call is not None:
        return 6.0 if pairs.call_in_a(b.call) is a.call else 0.0
    if a.step is None or b.step is None:
        return 0.0
    if a.step.index in pairs.steps_of_a or b.step.index in pairs.steps:
        return 6.0 if pairs.step_in_a(b.step) is a.step else 0.0
    if not interchangeable(a.step, b.step):
        return 0.0
    score = 2.0 if a.name == b.name else 1.0
    same_shapes = [value.shape for value in a.outputs] == [value.shape for value in b.outputs]
    score += 1.0 * same_shapes
    if a.step.constants == b.step.constants:
        score += 0.5
    partners = [pairs.value_in_a(given.value) for given in b.step.inputs]
    roots = {pairs.a.root(given.value).number for given in a.step.inputs}
    known = [value for value in partners if value is not None]
    shared = sum(value.number in roots for value in known)
    computes = bool(b.step.outputs) and not b.step.transparent
    elsewhere = any(pairs.value_in_b(given.value) is not None for given in a.step.inputs)  # it is used by b, not here
    if (known or elsewhere) and not shared and (not computes or not same_shapes):
        return 0.0  # a view or an item of something else, or another size of something else
    if not shared and not same_shapes and a.step.call.type != b.step.call.type:
        return 0.0  # in two implementations the same operation at other sizes, as far as is known of something else
    return score + 1.0 * shared - 0.75 * (len(known) - shared)
