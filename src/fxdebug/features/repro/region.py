"""The operations that compute a value, back to tensors whose data is available."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import NoReturn

from fxdebug.data.graphs import Op, Operand, Ref
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Value, leaves
from fxdebug.errors import UsageError
from fxdebug.query.network import Network, Node, network_of

MOST = 60  # operations of one side: nobody reads a longer script
_IN_PLACE = ("iadd", "isub", "imul", "itruediv")


@dataclass(frozen=True)
class Line:
    """An operation: the name of its result, and the operation with names of results and of tensors as operands."""

    name: str
    op: Op
    source: str | None
    node: str


@dataclass
class Region:
    """The operations of one side in execution order, the name of the last result, and the tensors that go in by name.

    ``given`` are tensors of the run, ``weights`` those of the model.
    """

    lines: list[Line] = field(default_factory=list)
    result: str = ""
    given: dict[str, Value] = field(default_factory=dict)
    weights: dict[str, Value] = field(default_factory=dict)


def region_of(
    trace: TraceData, value: Value, node: str | None, cut: Set[int], is_kept: Callable[[Value], bool]
) -> Region:
    """Return the operations that compute a value of a run, the result of ``node`` where that is known.

    They reach back to the values whose numbers are in ``cut``; a value that no operation computes must have been kept.
    Raises ``UsageError`` where they do not lead back to kept values.
    """
    return _Search(network_of(trace), cut, is_kept).run(value, node)


class _Search:
    def __init__(self, network: Network, cut: Set[int], is_kept: Callable[[Value], bool]) -> None:
        self._net, self._cut, self._is_kept = network, cut, is_kept
        self._region = Region()
        self._lines: dict[str, Line | None] = {}  # by the id of the node; ``None`` while its operands are looked up
        self._names: dict[str, int] = {}
        self._of_value: dict[int, str] = {}  # the name of a tensor that goes in, by its number

    def run(self, value: Value, node: str | None) -> Region:
        known = None if node is None else self._net.nodes.get(node)
        if known is not None and known.kind in ("call_function", "call_method") and value.number not in self._cut:
            made = self._node(known)
            self._region.result = _text(made if isinstance(known.item, Value) else _part(made, known, value))
        else:
            self._region.result = _text(self._value(value, "x"))
            if not self._lines and value.number not in self._cut:
                made_by = self._net.producer_of.get(value.number, "this step")
                _refuse(
                    f"the operations that compute the result of {made_by} were not recorded",
                    "its call has a reason (call.reason); with gradients, torch takes no fused path",
                )
        lines = [(self._net.nodes[id].position, line) for id, line in self._lines.items() if line is not None]
        self._region.lines = [line for _, line in sorted(lines, key=lambda pair: pair[0])]
        return self._region

    def _value(self, value: Value, name: str) -> Operand:
        """Return what stands for a tensor: the name of one that goes in, or of a result."""
        if value.number in self._of_value:
            return Ref(self._of_value[value.number])
        if value.name is not None:
            return self._goes_in(value, _short(value.name), self._region.weights)
        if value.number in self._cut:
            return self._goes_in(value, name, self._region.given)
        id = self._net.producer_of.get(value.number)
        node = None if id is None else self._net.nodes[id]
        if node is None or node.kind not in ("call_function", "call_method"):
            if self._is_kept(value):
                return self._goes_in(value, name, self._region.given)
            where = f"what {name} holds ({value.label})" if node is None else f"the result of {node.id} ({value.label})"
            _refuse(
                f"{where} was not kept, and no recorded operation computes it",
                "run both with fx_debug(…, values='tensors') and with graphs",
            )
        return _part(self._node(node), node, value)

    def _goes_in(self, value: Value, name: str, table: dict[str, Value]) -> Ref:
        name = self._of_value[value.number] = self._unique("x" if name.startswith(("input", "_")) else name)
        table[name] = value
        return Ref(name)

    def _unique(self, name: str) -> str:
        name = name if name.isidentifier() else f"x_{''.join(c if c.isalnum() else '_' for c in name)}"
        count = self._names[name] = self._names.get(name, -1) + 1
        return self._unique(f"{name}_{count}") if count else name

    def _node(self, node: Node) -> Ref:
        """Return the name of the result of an operation, which becomes a line."""
        if node.id in self._lines:
            line = self._lines[node.id]
            if line is None:
                _refuse(f"{node.id} depends on itself", "take another finding")
            return Ref(line.name)
        if len(self._lines) >= MOST:
            _refuse(
                f"more than {MOST} operations stand between the last tensors that were kept and this result",
                "compare inside the call, or split it into modules, whose inputs and results are kept",
            )
        op = node.step
        assert op is not None
        self._lines[node.id] = None
        written = self._written_before(node)

        def operand(item: Operand) -> Operand:
            if isinstance(item, Ref):
                return self._result(f"{self._net.call_id(node.call)}/{item.node}", item.node, node, written)
            if isinstance(item, Group):
                return replace(item, items=tuple([operand(each) for each in item.items]), text=None)  # type: ignore[misc]
            return item

        args = tuple([operand(arg) for arg in op.args])
        kwargs = {name: operand(arg) for name, arg in op.kwargs.items()}
        if args and is_in_place(op) and isinstance(args[0], Ref) and args[0].node in self._region.given:
            args = (Ref(f"{args[0].node}.clone()"), *args[1:])
        line = self._lines[node.id] = Line(
            self._unique(op.name), replace(op, args=args, kwargs=kwargs), node.source, node.id
        )
        return Ref(line.name)

    def _written_before(self, node: Node) -> dict[int, Node]:
        """Return the operations that wrote to what a node is given since it was made, by storage."""
        writers: dict[int, Node] = {}
        for edge in self._net.into.get(node.id, ()):
            if edge.kind == "memory" and edge.value is not None and edge.value.storage is not None:
                writer = self._net.nodes[edge.source]
                written = self._base_of(writer) if writer.op == "setitem" else writer.item
                if not isinstance(written, Value) or written.shape != edge.value.shape:
                    _refuse(f"{writer.id} writes to a part of a tensor", "write that part without changing it in place")
                writers[edge.value.storage] = writer
        return writers

    def _base_of(self, writer: Node) -> Item:
        """Return the tensor that ``x[…] = y`` writes to."""
        base = writer.step.args[0] if writer.step is not None and writer.step.args else None
        name = base.node if isinstance(base, Ref) else ""
        node = self._net.nodes.get(f"{self._net.call_id(writer.call)}/{name}")
        return node.item if node is not None else self._item_of(writer, name)

    def _result(self, id: str, name: str, user: Node, written: dict[int, Node]) -> Operand:
        """Return what stands for the result of another node of the same graph."""
        node = self._net.nodes.get(id)
        item = self._item_of(user, name) if node is None else node.item
        if isinstance(item, Value) and item.storage in written and item.storage is not None:
            return self._node(written[item.storage])
        is_operation = node is not None and node.kind in ("call_function", "call_method")
        if is_operation and isinstance(item, Group) and next(leaves(item), None) is not None:
            assert node is not None
            return self._node(node)
        return self._operand(item, name)

    def _item_of(self, user: Node, name: str) -> Item:
        """Return the result of a call of a module in the graph of ``user``."""
        body = self._net.bodies[user.call.index]
        steps = self._net.steps(user.call)
        assert body is not None
        return next((item for step, item in zip(steps, body.results) if step.name == name), None)

    def _operand(self, item: Item, name: str) -> Operand:
        if isinstance(item, Value):
            return self._value(item, name)
        if isinstance(item, Group):
            return replace(item, items=tuple([self._operand(each, name) for each in item.items]), text=None)  # type: ignore[misc]
        return item


def _part(made: Operand, node: Node, value: Value) -> Operand:
    """Return the part of a result that a value is."""
    if isinstance(node.item, Value):
        return made
    path = next((keys for keys, each in _places(node.item) if each.number == value.number), None)
    if path is None:
        _refuse(f"{node.id} does not return {value.label}", "take another finding")
    return Ref(_text(made) + "".join([f"[{key!r}]" for key in path]))


def _places(item: Item, keys: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Value]]:
    if isinstance(item, Value):
        yield keys, item
    elif isinstance(item, Group):
        names = item.keys if item.keys is not None else range(len(item.items))
        for key, inner in zip(names, item.items):
            yield from _places(inner, (*keys, key))


def _text(operand: Operand) -> str:
    assert isinstance(operand, Ref)
    return operand.node


def _short(name: str) -> str:
    """Return a name of two words at most for a weight.

    >>> _short("blocks.2.norm.weight"), _short("0.bias")
    ('norm_weight', 'bias')
    """
    return "_".join([part for part in name.split(".")[-2:] if not part.isdigit()]) or "weight"


def is_in_place(op: Op) -> bool:
    """Does an operation write to one of its arguments?"""
    return (op.target.endswith("_") and not op.target.endswith("__")) or op.target.rpartition(".")[2] in _IN_PLACE


def _refuse(why: str, advice: str) -> NoReturn:
    raise UsageError(f"no script can be written: {why}: {advice}")
