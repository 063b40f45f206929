"""Leave out of a script what both sides compute alike: its results go in instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fxdebug.data.graphs import Op, Operand, Ref, text_of
from fxdebug.data.values import Group
from fxdebug.features.repro.region import Line, is_in_place

_NAME = re.compile(r"\w+")


class Side:
    """The lines of one side, the name of its result, and by the name of each input that of its tensor in the file."""

    def __init__(
        self, lines: Iterable[Line], result: str, inputs: Mapping[str, str], weights: frozenset[str] = frozenset()
    ) -> None:
        self.lines, self.result, self.inputs = list(lines), result, dict(inputs)
        self.weights = weights  # tensors of the file that are weights

    def renamed(self, names: Mapping[str, str]) -> Side:
        """Return the same with tensors that go in under other names, where these are free."""
        taken = {line.name for line in self.lines} | self.inputs.keys()
        free = {old: new for old, new in names.items() if new not in taken}
        lines = [replace(line, op=with_names(line.op, free)) for line in self.lines]
        inputs = {free.get(key, key): each for key, each in self.inputs.items()}
        return Side(lines, _replaced(self.result, free), inputs, self.weights)


def without_common_part(a: Side, b: Side) -> tuple[Side, Side, list[str]]:
    """Return both sides without the lines that are the same, and the names of the results of these that go in instead.

    A name in the list is that of a result of a.
    """
    if any(is_in_place(line.op) for side in (a, b) for line in side.lines):
        return a, b, []
    numbers: dict[object, int] = {}
    keys_a, keys_b = _keys(a, numbers), _keys(b, numbers)
    ends = {keys_a.get(_first(a.result)), keys_b.get(_first(b.result))}
    shared = ({keys_a[line.name] for line in a.lines} & {keys_b[line.name] for line in b.lines}) - ends
    names = {keys_a[line.name]: line.name for line in reversed(a.lines)}
    sides: list[Side] = []
    cut = dict[str, None]()
    for side, keys in ((a, keys_a), (b, keys_b)):
        kept = [line for line in side.lines if keys[line.name] not in shared]
        used = dict.fromkeys([name for line in kept for name in _used(line.op)] + [_first(side.result)])
        cuts = {name: names[keys[name]] for name in used if name in keys and keys[name] in shared}
        taken = {line.name for line in kept} | side.inputs.keys()
        new = {old: name if old == name or name not in taken else f"{name}_" for old, name in cuts.items()}
        cut |= dict.fromkeys(cuts.values())
        inputs = {name: each for name, each in side.inputs.items() if name in used}
        inputs = {new[old]: cuts[old] for old in cuts} | inputs
        if sides:  # in the order of a; what b alone is given first, and weights last
            order = {each: place for place, each in enumerate(sides[0].inputs.values())}
            for each in inputs.values():
                order.setdefault(each, order.get(each.removesuffix("_b"), len(order) if each in side.weights else -1))
            inputs = dict(sorted(inputs.items(), key=lambda pair: order[pair[1]]))
        lines = [replace(line, op=with_names(line.op, new)) for line in kept]
        sides.append(Side(lines, _replaced(side.result, new), inputs, side.weights))
    return sides[0], sides[1], list(cut)


def with_names(op: Op, names: Mapping[str, str]) -> Op:
    """Return an operation with other names for some of its operands."""

    def operand(item: Operand) -> Operand:
        if isinstance(item, Ref):
            return Ref(_replaced(item.node, names))
        if isinstance(item, Group):
            return replace(item, items=tuple([operand(each) for each in item.items]))  # type: ignore[misc]
        return item

    kwargs = {name: operand(arg) for name, arg in op.kwargs.items()}
    return replace(op, args=tuple([operand(arg) for arg in op.args]), kwargs=kwargs)


def _keys(side: Side, numbers: dict[object, int]) -> dict[str, int]:
    """Return a number for what each name stands for, the same one for equal operations of equal tensors."""
    keys = {name: numbers.setdefault(("in", each), len(numbers)) for name, each in side.inputs.items()}
    for line in side.lines:
        op = with_names(line.op, {name: f"_{keys[name]}" for name in _used(line.op) if name in keys})
        words = [text_of(arg) for arg in op.args], sorted((name, text_of(arg)) for name, arg in op.kwargs.items())
        keys[line.name] = numbers.setdefault((op.kind, op.target, str(words)), len(numbers))
    return keys


def _used(op: Op) -> list[str]:
    """Return the names of an operation's operands."""
    found: list[str] = []
    pending: list[Operand] = [*op.args, *op.kwargs.values()]
    while pending:
        item = pending.pop(0)
        if isinstance(item, Ref):
            found.append(_first(item.node))
        elif isinstance(item, Group):
            pending = [*item.items, *pending]
    return found


def _first(text: str) -> str:
    match = _NAME.match(text)
    return "" if match is None else match[0]


def _replaced(text: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: names.get(match[0], match[0]), text, count=1)
