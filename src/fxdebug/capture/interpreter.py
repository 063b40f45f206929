"""Walking a graph: with the records of the run, or with computation.

:class:`Joiner` computes nothing: each node is answered from what was recorded (at a ``call_module`` node
with that call's recorded outputs), so that every node has its value. :class:`Executor` runs a
verified graph, with its children answered from records of their tensors or called for real.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.immutable_collections import immutable_dict, immutable_list

from fxdebug.capture import reasons
from fxdebug.capture.blocks import closed
from fxdebug.capture.body import Body
from fxdebug.capture.coding import Opaque, Struct, have_same_keys, is_same, members_of
from fxdebug.capture.describe import type_name
from fxdebug.capture.fxgraph import Absent, Built
from fxdebug.capture.pattern import Attribute, Held, Pattern, Slot, member
from fxdebug.capture.reasons import Words
from fxdebug.capture.seen import Uid
from fxdebug.capture.sizes import evaluate
from fxdebug.capture.values import Values
from fxdebug.data.values import Group, Item, Thing, Value, plain


class Joiner:
    """Gives every node of a graph the value it had in one call."""

    def __init__(self, built: Built, body: Body, uids: Sequence[Uid | None], values: Values) -> None:
        self._built = built
        self._body = body
        self._uids = uids
        self._values = values
        self._shapes: dict[Uid, tuple[int, ...]] = {uid: facts[0] for uid, facts in body.before.items()}

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
                self._shapes[Uid(entry.changed[0])] = entry.changed[1]
            return self.item(entry.out, iter(entry.values))
        if n in built.of_slot:
            uid = self._uids[built.of_slot[n]]
            return None if uid is None else self._body.given.get(uid, self._values.objects[uid])
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
        if type(code) is Uid:
            return next(values, self._values.objects[code])
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
            entry = self._values.seen(held)
            return None if entry is None else entry.value
        return plain_item(held.type if isinstance(held, Absent) else held)

    def _size(self, slot: int, dim: int) -> int:
        uid = self._uids[slot]
        assert uid is not None
        shape = self._shapes.get(uid, self._values.objects[uid].shape)
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
        return plain(thing)  # type: ignore[no-any-return]
    if isinstance(thing, slice):
        return Thing("slice", f"{_bound(thing.start)}:{_bound(thing.stop)}" + (f":{thing.step}" if thing.step else ""))
    if type(thing) is Opaque:
        return Thing(type_name(type(thing.thing)), f"<{type_name(type(thing.thing))}>")
    if isinstance(thing, type):
        return Thing("type", f"<{type_name(thing)}>")
    if isinstance(thing, (torch.dtype, torch.device, torch.layout, torch.memory_format, type(Ellipsis))):
        return Thing(type_name(type(thing)), str(thing) if thing is not Ellipsis else "...")
    return Thing(type_name(type(thing)), f"<{type_name(type(thing))}>")


def _bound(bound: Any) -> str:
    return "" if bound is None else str(bound)


class Refused(Exception):
    """A graph is not run: ``reason`` says which assumption does not hold, or what is missing."""

    def __init__(self, reason: Words) -> None:
        super().__init__(reason)
        self.reason = reason


class Executor(fx.Interpreter):
    """Runs a verified graph for the module it belongs to, and checks its guards on the way.

    ``child`` answers ``call_module`` nodes: ``(module, args, kwargs) → result``; by default its ``forward`` is called.
    """

    def __init__(
        self,
        built: Built,
        module: nn.Module,
        child: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(nn.Module(), graph=built.graph)
        self.extra_traceback = False  # torch would add lines about itself to what is raised
        self._built = built
        self._module = module
        self._child = child
        self._answers = {guard.node: guard for guard in built.pattern.guards if guard.node is not None}
        self._expected = {i: built.pattern.nodes[i].out for i in self._answers}

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[Any, Any]:
        """Arguments in containers of Python's own: torch.fx's cannot be written to, and whoever is called may do so."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return _thawed(args), {name: _thawed(arg) for name, arg in kwargs.items()}

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter, buffer or held object."""
        held = self._built.objects.get(target)
        return held if held is not None else member(self._module, str(target))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A child: run, or answered from the records."""
        module = self._built.objects.get(target) or member(self._module, str(target))
        if self._child is not None:
            return self._child(module, args, kwargs)
        return module.forward(*args, **kwargs)  # what hooks and a __call__ of its own compute is in this graph

    def run(self, *args: Any, **options: Any) -> Any:
        """Run the graph; no block that it entered is left open."""
        with closed():
            return super().run(*args, **options)

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; where its value was an assumption, it must come out again."""
        result = super().run_node(n)
        index = self._built.of_node.get(n)
        if index in self._answers:
            expected = self._expected[index]
            if type(result) is not type(expected) or not is_same(result, expected):
                guard = self._answers[index]
                raise Refused(reasons.OTHER_ANSWER(assumption=guard, answer=repr(result)))
        return result


def _thawed(thing: Any) -> Any:
    kind = type(thing)  # what the program's own kinds hold is the program's
    if kind is immutable_dict:
        return {key: _thawed(item) for key, item in thing.items()}
    if kind is immutable_list:
        return [_thawed(item) for item in thing]
    return tuple([_thawed(item) for item in thing]) if kind is tuple else thing


def bindings(pattern: Pattern, template: Any, thing: Any, into: dict[int, Any]) -> None:
    """Put the tensors of an argument (or result) into their slots. Raises :class:`Refused` if it does not fit."""
    kind = type(template)
    if kind is Slot:
        if not isinstance(thing, Tensor):
            raise Refused(reasons.TENSOR_EXPECTED(given=type(thing).__name__))
        if into.setdefault(template.number, thing) is not thing:
            raise Refused(reasons.SAME_TENSOR_EXPECTED())
    elif kind in (tuple, list):
        if type(thing) is not kind and (kind is list or type(thing) is not torch.Size):
            raise Refused(reasons.KIND_EXPECTED(kind=kind.__name__, given=type(thing).__name__))
        if len(thing) != len(template):
            raise Refused(reasons.ITEMS_EXPECTED(count=len(template), given=len(thing)))
        for x, y in zip(template, thing):
            bindings(pattern, x, y, into)
    elif kind is dict:
        if type(thing) is not dict or not have_same_keys(thing, template):
            raise Refused(reasons.KEYWORDS_EXPECTED(names=", ".join(map(str, template)) or "none"))
        for key, item in template.items():
            bindings(pattern, item, thing[key], into)
    elif kind is Struct:
        members = members_of(thing) if type(thing) is template.type else None
        if members is None or members[0] != template.keys or len(members[1]) != len(template.items):
            raise Refused(reasons.FIELDS_EXPECTED(kind=template.type.__name__))
        for x, y in zip(template.items, members[1]):
            bindings(pattern, x, y, into)
    elif kind is Held:
        raise Refused(reasons.WORKS_ON(kinds=f"a {template.type.__name__}"))
    elif kind is not Attribute and (type(thing) is not kind or not is_same(thing, template)):
        raise Refused(reasons.HOLDS_FOR(expected=repr(template), given=repr(thing)))


__all__ = ["Executor", "Joiner", "Refused", "bindings", "plain_item"]
