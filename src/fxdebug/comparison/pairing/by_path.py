"""Pairing by names: calls of one path and number, and in their bodies the operations in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import NamedTuple

from fxdebug.comparison.pairing.align import in_order
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import How
from fxdebug.comparison.steps import Step, StepList, kindred
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.names import op_of_module
from fxdebug.query import network

UNKNOWN = "Module"  # the class, where it was not written down


def pair_by_path(pairs: Pairs) -> None:
    """Pair what has the same name on both sides (a's names as the user maps them), and the inputs of the run."""
    a, b = pairs.a, pairs.b
    _inputs(pairs)
    _weights(pairs)
    known = {(a.path(call), call.number): call for call in reversed(a.trace.calls)}
    for call in b.trace.calls:
        other = known.get((call.path, call.number))
        if call.parent_index is None:
            other = a.trace.root
        if other is None or not _alike(other, call):
            continue
        how: How = "mapping" if other.path in a.renamed else "path"
        pairs.call(other, call, how, 1.0)
    for call in b.trace.calls:
        found = pairs.calls.get(call.index)
        if found is not None:
            _named_alike(pairs, a.trace.calls[found.a], call)
            _same_bodies(pairs, a.trace.calls[found.a], call, found.how)


def _alike(a: Call, b: Call) -> bool:
    """May two calls of one path be the same? A bare position says little about modules of different classes."""
    if a.type == b.type or a.parent_index is None:
        return True
    return not a.path.rpartition(".")[2].isdigit()


def _inputs(pairs: Pairs) -> None:
    """The tensors the runs were given: by name, then in order."""
    one, other = dict(pairs.a.trace.root.inputs.named()), dict(pairs.b.trace.root.inputs.named())
    for slot in [slot for slot in other if slot in one]:
        pairs.value(one.pop(slot), other.pop(slot), "path", 1.0)
    for left, right in zip(one.values(), other.values()):
        if left.shape == right.shape and left.dtype == right.dtype:
            pairs.value(left, right, "order", 0.8)


def _weights(pairs: Pairs) -> None:
    """Parameters and buffers of one name, the first sight of each with the first."""
    named: dict[str, list[Value]] = defaultdict(list)
    for value in pairs.a.values.values():
        if value.name is not None:
            named[_renamed(pairs.a, value.name)].append(value)
    for value in pairs.b.values.values():
        if value.name is not None and named.get(value.name):
            pairs.value(named[value.name].pop(0), value, "path", 1.0)


def _renamed(run: StepList, name: str) -> str:
    path, dot, leaf = name.rpartition(".")
    return f"{run.renamed[path]}{dot}{leaf}" if path in run.renamed else name


# Bodies ------------------------------------------------------------------------------------------


class _Item(NamedTuple):
    """One thing that happens in a body: an operation or a call."""

    step: Step | None
    call: Call | None
    name: str

    @property
    def outputs(self) -> tuple[Value, ...]:
        if self.step is not None:
            return self.step.outputs or self.step.passed
        return () if self.call is None else tuple(self.call.outputs or ())


def _named_alike(pairs: Pairs, a: Call, b: Call) -> None:
    """The reference debugger does not write classes: a call there does what the call of its name does."""
    for run, call, type in ((pairs.a, a, b.type), (pairs.b, b, a.type)):
        for step in run.inside.get(call.index, ()) if call.type == UNKNOWN else ():
            step.name = op_of_module(type)


def _same_bodies(pairs: Pairs, a: Call, b: Call, how: How) -> None:
    """Pair the operations of two bodies that do the same, one by one."""
    one, other = _items(pairs.a, a), _items(pairs.b, b)
    if [_plain(item) for item in one] == [_plain(item) for item in other]:
        for left, right in zip(one, other):
            if left.step is not None and right.step is not None:
                pairs.step(left.step, right.step, how, 1.0)


def pair_bodies(pairs: Pairs) -> None:
    """Pair what is left in the bodies of paired calls, in order: those that do not quite do the same."""
    for call in pairs.b.trace.calls:
        found = pairs.calls.get(call.index)
        if found is None:
            continue
        one, other = _items(pairs.a, pairs.a.trace.calls[found.a]), _items(pairs.b, call)
        if all(item.step is None or item.step.index in pairs.steps for item in other):
            continue
        for left, right in in_order(one, other, lambda x, y: _score(pairs, x, y), _plain):
            if left.step is not None and right.step is not None:
                pairs.step(left.step, right.step, found.how, 0.95)


def _items(run: StepList, call: Call) -> list[_Item]:
    net = network.network_of(run.trace)
    body, own, found = net.bodies[call.index], net.call_id(call), []
    steps = net.steps(call)
    if body is None or not steps or not run.graphs:
        if call.index in run.inside:
            return [_Item(step, None, step.name) for step in run.inside[call.index]]
        return []
    children = iter(body.calls)
    for step in steps:
        if step.kind == "call_module":
            child = run.trace.calls[next(children)]
            found.append(_Item(None, child, run.path(child)))
        elif f"{own}/{step.name}" in run.at:
            made = run.at[f"{own}/{step.name}"]
            found.append(_Item(made, None, made.name))
    return found


def _plain(item: _Item) -> Hashable:
    return (item.name, item.call is None, tuple([value.shape for value in item.outputs]))


def _score(pairs: Pairs, a: _Item, b: _Item) -> float:
    """How well two things in two bodies fit; those that are paired already hold the rest in place."""
    if a.call is not None and b.call is not None:
        return 6.0 if pairs.of_call(b.call) is a.call else 0.0
    if a.step is None or b.step is None:
        return 0.0
    if a.step.index in pairs.steps_of_a or b.step.index in pairs.steps:
        return 6.0 if pairs.of_step(b.step) is a.step else 0.0
    if not kindred(a.step, b.step):
        return 0.0
    score = 2.0 if a.name == b.name else 1.0
    alike = [value.shape for value in a.outputs] == [value.shape for value in b.outputs]
    score += 1.0 * alike
    if a.step.constants == b.step.constants:
        score += 0.5
    arriving = [pairs.of_value(given.value) for given in b.step.inputs]
    roots = {pairs.a.root(given.value).number for given in a.step.inputs}
    known = [value for value in arriving if value is not None]
    hits = sum(value.number in roots for value in known)
    if known and not hits and (b.step.transparent or not alike):
        return 0.0  # a view of something else, another size of something else
    return score + 1.0 * hits - 0.75 * (len(known) - hits)
