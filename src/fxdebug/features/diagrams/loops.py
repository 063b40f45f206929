"""Loops over repeated calls: the operations between the calls, the same in every turn, and the turn of each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fxdebug.data.calls import Call
from fxdebug.exports.drawing.colors import is_bad
from fxdebug.query.folding import FoldedCalls, Row
from fxdebug.query.network import Network, Node


class Turns:
    """The turns of the repeated rows of a drawing: which of them a node is in."""

    def __init__(self, net: Network, root: FoldedCalls) -> None:
        self._net = net
        self._loops: list[bool] = []  # by row: does it call the same modules in each turn, as the steps of a loop do?
        self._row_numbers: dict[int, int] = {}  # by the id of a row
        self._of_call: dict[int, list[tuple[int, object]]] = {}  # the row, and the turn in it
        self._of_node: dict[str, list[tuple[int, object]]] = {}
        self._known: dict[int, dict[int, object]] = {}  # by call: its turns, and those of the calls around it
        pending: list[Row] = [root]
        while pending:
            row = pending.pop()
            pending.extend(row.children)
            if row.repeats > 1:
                self._add(row)

    def _add(self, row: Row) -> None:
        number = self._row_numbers[id(row)] = len(self._loops)
        paths = dict[tuple[object, ...], str]()
        is_loop = True
        for place, (member, each) in enumerate(_members(row)):
            counts: dict[int | None, int] = {}  # by the call around
            for call in member.calls:
                count = counts[call.parent_index] = counts.get(call.parent_index, -1) + 1
                turn, nth = divmod(count, each)
                is_loop &= paths.setdefault((place, call.parent_index, nth), call.path) == call.path
                self._of_call.setdefault(call.index, []).append((number, (call.parent_index, turn)))
        self._loops.append(is_loop)

    def add_operation(self, row: Row, node: Node, call: Call, turn: int) -> None:
        """Note that an operation of a call is in this turn of a repeated row."""
        self._of_node.setdefault(node.id, []).append((self._row_numbers[id(row)], (call.index, turn)))

    def _of(self, node: Node) -> dict[int, object]:
        own = self._of_node.get(node.id)
        around = self._around(node.call)
        return around if own is None else {**around, **dict(own)}

    def _around(self, call: Call) -> dict[int, object]:
        found = self._known.get(call.index)
        if found is None:
            found, inner = {}, call
            while True:
                found |= self._of_call.get(inner.index, ())
                if inner.parent is None:
                    break
                inner = inner.parent
            self._known[call.index] = found
        return found

    def between(self, source: Node, target: Node) -> Literal["", "stack", "loop"]:
        """Does a value go from one turn to another: of a ``loop``, or from one layer of a ``stack`` to the next?"""
        there = self._of(target)
        kinds = {self._loops[row] for row, turn in self._of(source).items() if there.get(row, turn) != turn}
        return "loop" if True in kinds else "stack" if kinds else ""

    def is_in_loop(self, node: Node) -> bool:
        """Is a node in a turn of a loop?"""
        return any(self._loops[row] for row in self._of(node))


def _members(row: Row) -> list[tuple[FoldedCalls, int]]:
    """Return the rows of calls that one turn consists of, and how many calls of each are in a turn."""
    if isinstance(row, FoldedCalls):
        return [(row, 1)]
    found: list[tuple[FoldedCalls, int]] = []
    pending: list[tuple[Row, int]] = [(child, 1) for child in row.children]
    while pending:
        inner, each = pending.pop()
        if isinstance(inner, FoldedCalls):
            found.append((inner, each * inner.repeats))
        else:
            pending.extend([(child, each * inner.repeats) for child in inner.children])
    return found


def operations_of_loop(net: Network, row: Row, parent: Call, nodes: Sequence[Node]) -> list[list[Node]]:
    """Return the operations among ``nodes``, those of ``parent``, that each turn of a repeated row does.

    Each comes as a list with its node in every turn. The list is empty where the turns do not do the same.
    """
    turns = _turns(net, row, parent)
    inside: list[list[Node]] = [[] for _ in turns]
    between: list[list[Node]] = [[] for _ in turns[1:]]
    before, after = [], []
    begin, end = turns[0][0][0], turns[-1][-1][1]
    others = [_span(net, call) for call in parent.children]
    earliest = max((last for _, last in others if last < begin), default=-1)
    latest = min((first for first, _ in others if first > end), default=len(net.nodes))
    for node in nodes:
        place = sum(turn[0][0] < node.position for turn in turns) - 1  # the turn that began last
        if place < 0:
            before += [node] if node.position > earliest else []
        elif node.position < turns[place][-1][1]:
            inside[place].append(node)
        elif place < len(between):
            between[place].append(node)
        else:
            after += [node] if node.position < latest else []
    keys = [[(_calls_before(turn, node), _key(node)) for node in own] for turn, own in zip(turns, inside, strict=True)]
    if any(own != keys[0] for own in keys):
        return []
    return [*_around(before, between, after), *map(list, zip(*inside))]


def _around(before: list[Node], between: list[list[Node]], after: list[Node]) -> list[list[Node]]:
    """Return the operations between the turns: the end of one turn and the beginning of the next.

    The first turn has its beginning in ``before`` and the last one its end in ``after``. Where neither is there, the
    operations are done once less often than the calls.
    """
    pattern = _keys(between[0])
    if not pattern or any(_keys(gap) != pattern for gap in between):
        return []
    length = len(pattern)
    for split in range(length, -1, -1):
        first = before[len(before) - (length - split) :]
        if _keys(first) == pattern[split:] and _keys(after[:split]) == pattern[:split]:
            begins = zip(*[first, *(gap[split:] for gap in between)])
            ends = zip(*[*(gap[:split] for gap in between), after[:split]])
            return [*map(list, begins), *map(list, ends)]
    return [*map(list, zip(*between))]


def _turns(net: Network, row: Row, parent: Call) -> list[list[tuple[int, int]]]:
    """Return for every turn its calls in one parent, each as the positions of its first and its last node."""
    calls: list[Call] = []
    pending = [row]
    while pending:
        inner = pending.pop()
        if isinstance(inner, FoldedCalls):
            calls += [call for call in inner.calls if call.parent_index == parent.index]
        else:
            pending.extend(inner.children)
    calls.sort(key=lambda call: call.index)
    length = len(calls) // row.repeats
    return [[_span(net, call) for call in calls[i : i + length]] for i in range(0, len(calls), length)]


def _span(net: Network, call: Call) -> tuple[int, int]:
    return net.first_position[call.index], net.nodes[net.call_id(call)].position


def _calls_before(turn: Sequence[tuple[int, int]], node: Node) -> int:
    return sum(last < node.position for _, last in turn)


def _keys(nodes: Sequence[Node]) -> list[object]:
    return [_key(node) for node in nodes]


def _key(node: Node) -> object:
    """Return a key that is equal for operations that do the same."""
    return node.kind, node.op, None if node.value is None else (node.value.label, is_bad(node.stats))
