"""Walking a graph: with the records of the run, or with computation.

:class:`Joiner` computes nothing: each node is answered from what was recorded (at a ``call_module`` node
with that call's recorded outputs), so that every node has its value. :class:`Executor` runs a
verified graph, with its children answered from records of their tensors or called for real.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fxdebug.capture.graphs.symbolic_size import evaluate
from fxdebug.capture.graphs.template import member
from fxdebug.capture.graphs.to_fx import Absent, Built
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import OpaqueArg, Struct
from fxdebug.capture.tensors.describe import type_name
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.data.values import Group, Item, Thing, Value, as_item


class Joiner:
    """Gives every node of a graph the value it had in one call."""

    def __init__(self, built: Built, body: CallTape, uids: Sequence[TensorId | None], values: ValueTable) -> None:
        self._built = built
        self._body = body
        self._uids = uids
        self._values = values
        self._shapes: dict[TensorId, tuple[int, ...]] = {uid: facts[0] for uid, facts in body.before.items()}

    def results(self) -> dict[fx.Node, Item]:
        """Each node's value in this call."""
        self._found: dict[fx.Node, Item] = {}
        for node in self._built.nodes:
            if node.op != "output":
                self._found[node] = self._answered(node)
        return self._found

    def _answered(self, n: fx.Node) -> Any:
        """A node's value, from the records."""
        built = self._built
        index = built.of_node.get(n)
        if index is not None:
            entry = self._body.entries[index]
            if entry.changed is not None:
                self._shapes[TensorId(entry.changed[0])] = entry.changed[1]
            return self.item(entry.out, iter(entry.values))
        if n in built.of_slot:
            uid = self._uids[built.of_slot[n]]
            return None if uid is None else self._body.given.get(uid, self._values.first_values[uid])
        if n in built.of_size:
            return evaluate(built.of_size[n].expression, self._size, self._answer)
        if n in built.taken:
            whole, where = built.taken[n]
            entry = self._body.entries[built.of_node[whole]]
            return _part(self.item(entry.out, iter(entry.values)), where)
        if n.op == "get_attr":
            return self._attribute(str(n.target))
        if n.target is torch.Size:
            return _struct_item(_SIZE, tuple([self._operand(size) for size in n.args[0]]))  # type: ignore[union-attr]
        struct = getattr(n.target, "struct", None)
        if struct is not None:
            return _struct_item(struct, tuple([self._operand(arg) for arg in n.args]))
        return None

    def _operand(self, arg: Any) -> Item:
        if isinstance(arg, fx.Node):
            return self._found.get(arg)
        if isinstance(arg, (tuple, list)):
            return Group("sequence", type(arg).__name__, tuple([self._operand(item) for item in arg]))
        return plain_item(arg)

    def item(self, code: Any, values: Iterator[Value]) -> Item:
        """The item for a code, its tensors being ``values`` in order."""
        if type(code) is TensorId:
            return next(values, self._values.first_values[code])
        if isinstance(code, (tuple, list)):
            return Group("sequence", type(code).__name__, tuple([self.item(x, values) for x in code]))
        if isinstance(code, dict):
            return Group("mapping", "dict", tuple([self.item(x, values) for x in code.values()]), keys_of(code))
        if type(code) is Struct:
            return _struct_item(code, tuple([self.item(x, values) for x in code.items]))
        return plain_item(code)

    def _attribute(self, target: str) -> Item:
        held = self._built.objects.get(target)
        if held is None:
            with contextlib.suppress(AttributeError):
                held = member(self._body.module, target)
        if isinstance(held, Value):
            return held
        if isinstance(held, Tensor):
            entry = self._values.lookup(held)
            return None if entry is None else entry.value
        return plain_item(held.type if isinstance(held, Absent) else held)

    def _size(self, slot: int, dim: int) -> int:
        uid = self._uids[slot]
        assert uid is not None
        shape = self._shapes.get(uid, self._values.first_values[uid].shape)
        return torch.Size(shape).numel() if dim < 0 else shape[dim]

    def _answer(self, index: int) -> int:
        return int(self._body.entries[index].out)


_SIZE = Struct(torch.Size, None, [])


def _struct_item(struct: Struct, items: tuple[Item, ...]) -> Group:
    if issubclass(struct.type, dict):
        return Group("mapping", type_name(struct.type), items, struct.keys)
    if struct.keys is None:
        return Group("sequence", type_name(struct.type), items)
    return Group("object", type_name(struct.type), items, struct.keys, type_name(struct.type))


def _part(item: Item, where: tuple[Any, ...]) -> Item:
    for key in where:
        if not isinstance(item, Group):
            return None
        if item.keys is not None and key in item.keys:
            item = item.items[item.keys.index(key)]
        elif isinstance(key, int) and key < len(item.items):
            item = item.items[key]
        else:
            return None
    return item


def keys_of(mapping: Mapping[Any, Any]) -> tuple[Item, ...]:
    """The keys of a mapping as plain data: a tuple's or an object's text stands for it."""
    return tuple([Thing("tuple", repr(key)) if isinstance(key, tuple) else plain_item(key) for key in mapping])


def plain_item(thing: Any) -> Item:
    """The item for something that is not a tensor: itself, or how it is shown."""
    if thing is None or type(thing) in (bool, int, float, str, complex, bytes):
        return as_item(thing)  # type: ignore[no-any-return]
    if isinstance(thing, slice):
        return Thing("slice", f"{_bound(thing.start)}:{_bound(thing.stop)}" + (f":{thing.step}" if thing.step else ""))
    if type(thing) is OpaqueArg:
        return Thing(type_name(type(thing.thing)), f"<{type_name(type(thing.thing))}>")
    if isinstance(thing, type):
        return Thing("type", f"<{type_name(thing)}>")
    if isinstance(thing, (torch.dtype, torch.device, torch.layout, torch.memory_format, type(Ellipsis))):
        return Thing(type_name(type(thing)), str(thing) if thing is not Ellipsis else "...")
    return Thing(type_name(type(thing)), f"<{type_name(type(thing))}>")


def _bound(bound: Any) -> str:
    return "" if bound is None else str(bound)
