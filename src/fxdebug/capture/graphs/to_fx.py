"""A pattern as a ``torch.fx.Graph``: one that can be read, printed, and (if it was verified) run.

Grad and autocast blocks of the body stand in the graph as the calls that switch them, so that the
generated code computes what the body computed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxdebug.capture.graphs.grad_blocks import Blocks
from fxdebug.capture.graphs.symbolic_size import Size
from fxdebug.capture.graphs.template import Attribute, GraphTemplate, Node, OpaqueSlot, Slot
from fxdebug.capture.tape.encoding import ATOMS, NUMPYS, Struct, again, rebuilt
from fxdebug.capture.torch_state.grad_mode import Context
from fxdebug.data.graphs import Graph

# Tensor methods that are written as operators.
_OPERATORS: dict[Any, Callable[..., Any]] = {
    getattr(Tensor, f"__{name}__"): getattr(operator, name)
    for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "neg", "eq", "ne", "lt", "le", "gt", "ge",
        "iadd", "isub", "imul", "itruediv", "getitem", "setitem", "invert", "and_", "or_", "xor",
    )
    if hasattr(Tensor, f"__{name}__")
}  # fmt: skip


def built_of(pattern: GraphTemplate) -> Built:
    """The graph of a pattern, made once for all runs in which it is met: nobody writes to it."""
    built: Built | None = pattern.built
    if built is None:
        built = pattern.built = Built(pattern)
    return built


class Built:
    """A graph, what its ``get_attr`` and ``call_module`` targets are, and which pattern node each node is of."""

    def __init__(self, pattern: GraphTemplate) -> None:
        self.pattern = pattern
        self.graph = fx.Graph()
        self.written: dict[tuple[str, ...], Graph] = {}  # as plain data, by the classes of the children it calls
        self.objects: dict[str, Any] = {}  # constants and unregistered modules, by target
        self.of_node: dict[fx.Node, int] = {}  # operation nodes → index in the pattern
        self.of_slot: dict[fx.Node, int] = {}  # placeholders → slot
        self.of_size: dict[fx.Node, Size] = {}
        self.taken: dict[fx.Node, tuple[fx.Node, tuple[Any, ...]]] = {}  # part → (whole, where in it)
        self.opaque = 0  # operands that stand for objects the graph cannot hold
        self._slots: dict[int, fx.Node] = {}
        self._attributes: dict[Any, fx.Node] = {}
        self._sizes: dict[int, fx.Node] = {}  # by ``id``: the pattern keeps them
        self._computed: dict[tuple[Any, ...], fx.Node] = {}  # by what is computed from what
        self._results: list[fx.Node] = []
        self._blocks = Blocks(pattern.context)
        self._build()
        self.nodes: tuple[fx.Node, ...] = tuple(self.graph.nodes)
        self.calls: tuple[fx.Node, ...] = tuple([node for node in self.nodes if node.op == "call_module"])

    def _build(self) -> None:
        pattern = self.pattern
        for slot in range(pattern.inputs):
            name = pattern.names[slot] if slot < len(pattern.names) else f"input_{slot}"
            node = self.graph.placeholder(_identifier(name))
            self._slots[slot] = node
            self.of_slot[node] = slot
        for index, node in enumerate(pattern.nodes):
            self._switch(node.context)
            made = self._call(node)
            self.of_node[made] = index
            self._results.append(made)
            self._take(node.out, made, made, ())
        self._switch(pattern.context)
        self.graph.output(self._operand(pattern.out))

    def _call(self, node: Node) -> fx.Node:
        name = getattr(node.function, "__name__", "op")
        given: Any = (node.args, node.kwargs)
        if node.module is None and name not in _ASK_FOR_SIZES:
            given = _sizes_as_tuples(given)
        args, kwargs = self._operand(given[0]), self._operand(given[1])
        if node.module is not None:
            return self.graph.create_node("call_module", self._module_target(node.module), args, kwargs)
        function = node.function
        if function in _OPERATORS:
            return self.graph.create_node("call_function", _OPERATORS[function], args, kwargs, name=name.strip("_"))
        if name == "__get__":
            attribute = function.__self__.__name__  # type: ignore[union-attr]
            return self.graph.create_node("call_function", getattr, (args[0], attribute), {}, name=attribute)
        if name == "__set__":
            attribute = function.__self__.__name__  # type: ignore[union-attr]
            return self.graph.create_node("call_function", setattr, (args[0], attribute, args[1]), {})
        if getattr(Tensor, name, None) is function and args:
            return self.graph.create_node("call_method", name, args, kwargs, name=name.strip("_"))
        return self.graph.create_node(
            "call_function", _importable(function), args, kwargs, name=name.strip("_") or "op"
        )

    def _module_target(self, module: str | nn.Module) -> str:
        if isinstance(module, str):
            return module
        target = f"_unregistered_{type(module).__name__}_{len(self.objects)}"
        for known, thing in self.objects.items():
            if thing is module:
                return known
        self.objects[target] = module
        return target

    def _switch(self, context: Context) -> None:
        """Calls that bring about another grad, inference or autocast state."""
        for function, args in self._blocks.switches(context):
            self.graph.call_function(function, args)

    def _operand(self, template: Any) -> Any:
        kind = type(template)
        if kind is Slot:
            return self._slots[template.number]
        if kind is Size:
            return self._size(template)
        if kind is Attribute:
            return self._attribute(template)
        if kind is tuple or kind is list:
            return kind([self._operand(item) for item in template])
        if kind is dict:
            return {key: self._operand(item) for key, item in template.items()}
        if kind is slice:
            return slice(*(self._operand(getattr(template, name)) for name in ("start", "stop", "step")))
        if kind is Struct:
            items = [self._operand(item) for item in template.items]
            if template.type is torch.Size:
                return self.graph.call_function(torch.Size, (tuple(items),))
            return self.graph.call_function(_maker(template), tuple(items))
        if kind is OpaqueSlot:
            self.opaque += 1
            return self._constant(f"_object_{template.number}_{template.type.__name__}", Absent(template.type))
        is_written = kind in ATOMS or isinstance(template, (int, float, complex, str))
        if not is_written or kind is type or kind in NUMPYS:
            return self._constant(f"_constant_{len(self.objects)}", template)
        return template

    def _attribute(self, attribute: Attribute) -> fx.Node:
        key = attribute.name if attribute.name is not None else id(attribute.tensor)
        node = self._attributes.get(key)
        if node is None:
            if attribute.name is None:
                target = f"_tensor_constant_{len(self.objects)}"
                self.objects[target] = attribute.tensor
            else:
                target = attribute.name
            node = self._attributes[key] = self.graph.create_node("get_attr", target)
        return node

    def _constant(self, target: str, thing: Any) -> fx.Node:
        node = self._attributes.get(target)
        if node is None:
            self.objects[target] = thing
            node = self._attributes[target] = self.graph.create_node("get_attr", target)
        return node

    def _size(self, size: Size) -> fx.Node:
        node = self._sizes.get(id(size))
        if node is None:
            head, *operands = size.expression
            parts = tuple([self._size(x) if type(x) is Size else x for x in operands])
            node = self._computed.get((head, *parts))
            if node is None:
                node = self._computed[(head, *parts)] = self._computation(head, parts)
                if head != "node":
                    self.of_size[node] = size
            self._sizes[id(size)] = node
        return node

    def _computation(self, head: Any, parts: tuple[Any, ...]) -> fx.Node:
        if head == "size":
            return self.graph.call_method("size", (self._slots[parts[0]], parts[1]))
        if head == "numel":
            return self.graph.call_method("numel", (self._slots[parts[0]],))
        return self._results[parts[0]] if head == "node" else self.graph.call_function(head, parts)

    def _take(self, template: Any, whole: fx.Node, node: fx.Node, where: tuple[Any, ...]) -> None:
        """Give every slot in a result its node: the result, or what is taken out of it."""
        kind = type(template)
        if kind is Slot:
            if template.number not in self._slots or not where:
                self._slots[template.number] = node
        elif kind in _OPENED:
            for key, item, by_name in _members(template):
                if _has_slot(item):
                    part = self.graph.call_function(getattr if by_name else operator.getitem, (node, key))
                    self.taken[part] = (whole, (*where, key))
                    self._take(item, whole, part, (*where, key))


_ASK_FOR_SIZES = frozenset(("new",))  # a tuple of numbers means these numbers to them


def _sizes_as_tuples(template: Any) -> Any:
    """What is given to an operation to which a ``torch.Size`` and a tuple are the same: tuples read better."""

    def made(struct: Struct, items: list[Any]) -> Any:
        return tuple(items) if struct.type is torch.Size else again(struct, items)

    return rebuilt(template, lambda leaf: leaf, made)


def _members(template: Any) -> list[tuple[Any, Any, bool]]:
    """(key, item, is an attribute's name) of a container template."""
    if isinstance(template, dict):
        return [(key, item, False) for key, item in template.items()]
    if type(template) is Struct:
        keys = template.keys if template.keys is not None else range(len(template.items))
        by_name = template.keys is not None and not issubclass(template.type, dict)
        return [(key, item, by_name) for key, item in zip(keys, template.items)]
    if type(template) is slice:
        return [(name, getattr(template, name), True) for name in ("start", "stop", "step")]
    return [(index, item, False) for index, item in enumerate(template)]


def _has_slot(template: Any) -> bool:
    kind = type(template)
    if kind is Slot:
        return True
    return kind in _OPENED and any(_has_slot(item) for _, item, _ in _members(template))


_OPENED = frozenset((tuple, list, dict, Struct, slice))


class Absent:
    """Stands in a graph where an object was that the graph cannot hold: a cache made and filled while it ran."""

    def __init__(self, type: type) -> None:
        self.type = type


def _maker(struct: Struct) -> Callable[..., Any]:
    """A function that builds a named tuple, dataclass or ``ModelOutput``, with a name for the generated code."""

    def make(*items: Any) -> Any:
        return struct.build(list(items))

    make.__name__ = make.__qualname__ = f"make_{struct.type.__name__}"
    make.__module__ = "fxdebug"
    make.struct = struct  # type: ignore[attr-defined]
    return make


def _importable(function: Any) -> Callable[..., Any]:
    """The function, or one that calls it where torch.fx could not name it in code."""
    try:
        from torch.fx.node import _get_qualified_name

        _get_qualified_name(function)
        return function  # type: ignore[no-any-return]
    except Exception:

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        name = str(getattr(function, "__name__", type(function).__name__)).strip("_") or "op"
        call.__name__ = call.__qualname__ = name
        call.__wrapped__ = function  # type: ignore[attr-defined]
        return call


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "".join(c if c.isalnum() else "_" for c in f"a_{name}")
