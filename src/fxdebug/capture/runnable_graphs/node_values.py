"""The value that every node of a graph had in one call, from the records of the run. Nothing is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor, fx

from fxdebug.capture.graphs.fx_targets import make_dict, make_list
from fxdebug.capture.graphs.match import assigned_at
from fxdebug.capture.graphs.names import follow, member
from fxdebug.capture.graphs.symbolic_size import evaluate, is_given
from fxdebug.capture.graphs.template import GraphTemplate, TensorInObject
from fxdebug.capture.graphs.to_fx import Absent, FxBuild
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.changed_arguments import result_in
from fxdebug.capture.tape.encoding import OpaqueArg, Struct, leaves_in
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.type_names import type_name
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.data.values import Group, Item, Thing, Value, as_item


class NodeValues:
    """The values of a graph's nodes in one call; ``tensor_ids`` are the tensors in the slots of its template."""

    def __init__(
        self, build: FxBuild, tape: CallTape, tensor_ids: Sequence[TensorId | None], values: ValueTable
    ) -> None:
        self._build = build
        self._tape = tape
        self._tensor_ids = tensor_ids
        self._values = values
        self._shapes: dict[TensorId, tuple[int, ...]] = {
            tensor_id: layout[0] for tensor_id, layout in tape.input_layouts.items()
        }
        self._given = given_sizes(build.template, tape)
        self._items: dict[fx.Node, Item] = {}
        self._results: dict[int, Item] = {}  # by the position of the operation

    def items(self) -> dict[fx.Node, Item]:
        """Return the value of each node but the output, in execution order."""
        for node in self._build.nodes:
            if node.op != "output":
                self._items[node] = self._item_of_node(node)
        return self._items

    def item(self, code: Any, values: Iterator[Value]) -> Item:
        """Return the item of a code whose tensors are ``values``, in order."""
        if type(code) is TensorId:
            return next(values, self._values.first_values[code])
        if isinstance(code, (tuple, list)):
            return Group("sequence", type(code).__name__, tuple([self.item(x, values) for x in code]))
        if isinstance(code, dict):
            return Group("mapping", "dict", tuple([self.item(x, values) for x in code.values()]), keys_of(code))
        if type(code) is Struct:
            return _struct_item(code, tuple([self.item(x, values) for x in code.items]))
        return plain_item(code)

    def _item_of_node(self, n: fx.Node) -> Item:
        build = self._build
        index = build.entry_of.get(n)
        if index is not None:
            entry = self._tape.entries[index]
            if entry.changed is not None:
                self._shapes[TensorId(entry.changed[0])] = entry.changed[1]
            return self.item(result_in(entry.out), iter(entry.values))
        if n in build.slot_of:
            tensor_id = self._tensor_ids[build.slot_of[n]]
            return (
                None
                if tensor_id is None
                else self._tape.input_values.get(tensor_id, self._values.first_values[tensor_id])
            )
        if n in build.size_of:
            return evaluate(build.size_of[n].expression, self._size, self._answer, self._given)
        if n in build.part_of:
            whole, keys = build.part_of[n]
            index = build.entry_of[whole]
            return _part(self._result_and_changes(index), keys) or self._inside_object(
                self._tape.entries[index].out, keys
            )
        if n in build.inside:
            return self._tensor_inside(n, build.inside[n])
        if n in build.assigned:
            ref = assigned_at(self._tape.module, build.assigned[n], self._values)
            return None if ref is None else ref.value
        if n.op == "get_attr":
            return self._attribute(str(n.target))
        if n.target is torch.Size:
            return _struct_item(_SIZE, tuple([self._operand(size) for size in n.args[0]]))  # type: ignore[union-attr]
        if n.target is make_list or n.target is make_dict:
            items = n.args[0]  # torch.fx has them in containers of its own
            return self._operand(dict(items) if isinstance(items, dict) else list(items))  # type: ignore[arg-type]
        struct = getattr(n.target, "struct", None)
        if struct is not None:
            return _struct_item(struct, tuple([self._operand(arg) for arg in n.args]))
        return None

    def _inside_object(self, code: Any, keys: tuple[Any, ...]) -> Item:
        """Return a tensor inside an object that is compared by identity; ``None`` for anything else there."""
        for key in keys:
            held: Any = code.contents if type(code) is OpaqueArg else code
            if type(held) is Struct and held.keys is not None:
                held = dict(zip(held.keys, held.items))
            try:
                code = held.items[key] if type(held) is Struct else held[key]
            except (LookupError, TypeError):
                return None
        return self._values.first_values[code] if type(code) is TensorId else None

    def _result_and_changes(self, index: int) -> Item:
        """Return what a call returned, with what it put into its arguments: each of many parts looks it up here."""
        item = self._results.get(index)
        if item is None:
            entry = self._tape.entries[index]
            item = self._results[index] = self.item(entry.out, iter(entry.values))
        return item

    def _tensor_inside(self, n: fx.Node, place: TensorInObject) -> Item:
        base: Any = n
        for _ in place.steps:
            base = base.args[0]
        index = self._build.entry_of.get(base)
        returned = None if index is None else result_in(self._tape.entries[index].out)
        if type(returned) is not OpaqueArg:
            return None
        entry = None
        with contextlib.suppress(AttributeError, LookupError, TypeError):  # the object has changed since
            entry = self._values.lookup(follow(returned.object, place.steps))
        return None if entry is None else entry.value

    def _operand(self, arg: Any) -> Item:
        if isinstance(arg, fx.Node):
            return self._items.get(arg)
        if isinstance(arg, (tuple, list)):
            return Group("sequence", type(arg).__name__, tuple([self._operand(item) for item in arg]))
        if isinstance(arg, dict):
            return Group("mapping", "dict", tuple([self._operand(item) for item in arg.values()]), keys_of(arg))
        return plain_item(arg)

    def _attribute(self, target: str) -> Item:
        attribute = self._build.constants.get(target)
        if attribute is None:
            with contextlib.suppress(AttributeError):
                attribute = member(self._tape.module, target)
        if isinstance(attribute, Value):
            return attribute
        if isinstance(attribute, Tensor):
            entry = self._values.lookup(attribute)
            return None if entry is None else entry.value
        return plain_item(attribute.type if isinstance(attribute, Absent) else attribute)

    def _size(self, slot: int, dim: int) -> int:
        tensor_id = self._tensor_ids[slot]
        assert tensor_id is not None
        shape = self._shapes.get(tensor_id, self._values.first_values[tensor_id].shape)
        return torch.Size(shape).numel() if dim < 0 else shape[dim]

    def _answer(self, index: int) -> int:
        return int(self._tape.entries[index].out)


def given_sizes(template: GraphTemplate, tape: CallTape) -> dict[int, int]:
    """Return the integers among a call's arguments that are sizes in its graph, by number."""
    if not template.given_sizes:
        return {}
    leaves = zip(leaves_in((template.args, template.kwargs)), leaves_in((tape.args, tape.kwargs)))
    return {leaf.expression[1]: code for leaf, code in leaves if is_given(leaf)}


_SIZE = Struct(torch.Size, None, [])


def _struct_item(struct: Struct, items: tuple[Item, ...]) -> Group:
    if issubclass(struct.type, dict):
        return Group("mapping", type_name(struct.type), items, struct.keys)
    if struct.keys is None:
        return Group("sequence", type_name(struct.type), items)
    return Group("object", type_name(struct.type), items, struct.keys, type_name(struct.type))


def _part(item: Item, keys: tuple[Any, ...]) -> Item:
    """Return the item of a result that these keys lead to."""
    for key in keys:
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
    """Return the keys of a mapping as plain data; a tuple or an object becomes its text."""
    return tuple([Thing("tuple", repr(key)) if issubclass(type(key), tuple) else plain_item(key) for key in mapping])


def plain_item(argument: Any) -> Item:
    """Return the item of something that is not a tensor: itself, or a text for it."""
    kind = type(argument)  # not isinstance: it asks the object's ``__class__``
    if argument is None or kind in (bool, int, float, str, complex, bytes):
        return as_item(argument)  # type: ignore[no-any-return]
    if kind is slice:
        step = f":{argument.step}" if argument.step else ""
        return Thing("slice", f"{_bound(argument.start)}:{_bound(argument.stop)}{step}")
    if kind is OpaqueArg:
        return Thing(type_name(type(argument.object)), f"<{type_name(type(argument.object))}>")
    if issubclass(kind, Enum):
        return Thing(type_name(type(argument)), str(argument))
    if issubclass(kind, type):
        return Thing("type", f"<{type_name(argument)}>")
    if issubclass(kind, (torch.dtype, torch.device, torch.layout, torch.memory_format, type(Ellipsis))):
        return Thing(type_name(type(argument)), str(argument) if argument is not Ellipsis else "...")
    return Thing(type_name(type(argument)), f"<{type_name(type(argument))}>")


def _bound(bound: Any) -> str:
    return "" if bound is None else str(bound)
