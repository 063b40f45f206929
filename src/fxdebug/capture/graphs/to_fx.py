"""A template as a ``torch.fx.Graph``: it can be read, printed, and (if it was verified) run.

Grad and autocast blocks of the body become calls in the graph that switch them, so that the generated code computes
the same as the body.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxdebug.capture.graphs.fx_targets import (
    OPERATORS,
    TAKE_SIZES,
    changed_by,
    identifier,
    importable,
    make_dict,
    make_list,
    sizes_as_tuples,
    struct_maker,
)
from fxdebug.capture.graphs.grad_and_autocast import (
    Blocks,
    enter_attention_kernels,
    enter_attribute,
    enter_weight,
    leave_block,
)
from fxdebug.capture.graphs.symbolic_size import GIVEN, Size
from fxdebug.capture.graphs.template import (
    AssignedByCall,
    Attribute,
    GraphTemplate,
    OpaqueSlot,
    Slot,
    TensorInObject,
    is_call,
)
from fxdebug.capture.tape.call_tape import TapeEntry
from fxdebug.capture.tape.changed_arguments import Place, changes_in, objects_in, result_in
from fxdebug.capture.tape.encoding import ATOMS, NUMPY_SCALARS, Struct, is_same
from fxdebug.capture.torch_state.grad_mode import Context
from fxdebug.data.graphs import Graph


def fx_build_of(template: GraphTemplate) -> FxBuild:
    """Return the graph of a template, built once for all runs that use the template; it is never changed."""
    build = template.fx_build
    if build is None:
        build = template.fx_build = FxBuild(template)
    return build


def written_graph(build: FxBuild) -> fx.Graph:
    """Return the graph as it is written in code. It calls ``forward`` where the rest of a module's call is in it."""
    only = {node for node, index in build.entry_of.items() if index in build.template.forwards_only}
    if not only:
        return build.graph
    written, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in build.nodes:
        if node not in only:
            copies[node] = written.node_copy(node, copies.__getitem__)
            continue
        module = written.create_node("get_attr", node.target, name=f"{node.name}_module")
        args: Any = fx.map_arg(node.args, copies.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, copies.__getitem__)
        copies[node] = written.create_node("call_method", "forward", (module, *args), kwargs, name=node.name)
    return written


def shown_graph(build: FxBuild) -> fx.Graph:
    """Return the graph as people see it: its result alone, without what it leaves in objects among its arguments."""
    written = written_graph(build)
    if build.shown is build.nodes:
        return written
    names = {node.name for node in build.nodes} - {node.name for node in build.shown}
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in written.nodes:
        if node.op == "output":
            graph.output(fx.map_arg(node.args[0].args[0], copies.__getitem__))
        elif node.name not in names:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return graph


class FxBuild:
    """A ``torch.fx.Graph``, and the tables that relate its nodes to the template it was built from.

    ``constants`` has the objects and unregistered modules that ``get_attr`` and ``call_module`` nodes name, by target.
    Every node of the graph is in one of four tables, except attributes, constants, switches of a state and the
    output: ``entry_of`` (an operation or call → index of its entry), ``slot_of`` (a placeholder → its slot),
    ``size_of`` (a size, computed or given → its expression) and ``part_of`` (an item of a result → the whole, and the
    keys that lead to the item). ``object_of`` has the nodes that make an object → its number.
    ``shown`` are the nodes that people see. ``as_data`` keeps the graph as plain data, by the classes of the children
    it calls.
    """

    def __init__(self, template: GraphTemplate) -> None:
        self.template = template
        self.graph = fx.Graph()
        self.constants: dict[str, Any] = {}
        self.entry_of: dict[fx.Node, int] = {}
        self.slot_of: dict[fx.Node, int] = {}
        self.size_of: dict[fx.Node, Size] = {}
        self.inside: dict[fx.Node, TensorInObject] = {}  # tensors that were taken out of objects
        self.assigned: dict[fx.Node, AssignedByCall] = {}  # tensors that calls assigned to attributes
        self.part_of: dict[fx.Node, tuple[fx.Node, tuple[Any, ...]]] = {}
        self.object_of: dict[fx.Node, int] = {}
        # the slots of its arguments: all tensors but those in objects that it does not need
        self.inputs: list[int] = []
        self.as_data: dict[tuple[str, ...], Graph] = {}
        self._node_of_slot: dict[int, fx.Node] = {}
        self._slots_of: dict[int, list[int]] = {}  # of a tensor with several names, by the slot of the first
        for slot, first in template.names.items():
            self._slots_of.setdefault(first, [first]).append(slot)
        self._given: dict[int, fx.Node] = {}  # integers among the arguments, by number
        self._node_of_object: dict[int, fx.Node] = {}  # of objects that an operation or a call returned
        self._attributes: dict[Any, fx.Node] = {}
        self._sizes: dict[int, fx.Node] = {}  # by ``id`` of the size, which the template keeps alive
        self._computed: dict[tuple[Any, ...], fx.Node] = {}  # by function and operands
        self._results: list[fx.Node] = []  # the node of each entry
        # objects among the arguments that are known by what they hold; where any is changed, it works on themselves
        self._objects_given = dict(_objects_in((template.args, template.kwargs)))
        self._changes_objects = any(map(objects_in, (template.out, *[entry.out for entry in template.entries])))
        self._passed: set[tuple[type, int]] | None = None  # tensors and objects that the graph needs, once asked for
        self._blocks = Blocks(template.context)
        self._build()
        self.nodes: tuple[fx.Node, ...] = tuple(self.graph.nodes)
        self.shown: tuple[fx.Node, ...] = self._shown()
        self.calls: tuple[fx.Node, ...] = tuple([node for node in self.nodes if node.op == "call_module"])

    def _build(self) -> None:
        template = self.template
        held = set(_slots_in_objects((template.args, template.kwargs))) if self._changes_objects else ()
        for slot in range(template.inputs):
            if slot in held and not self._is_passed(Slot, slot):
                continue  # in a cache, say, that a call takes as a whole
            name = template.input_names[slot] if slot < len(template.input_names) else f"input_{slot}"
            node = self.graph.placeholder(identifier(name))
            self._node_of_slot[slot] = node
            self.slot_of[node] = slot
            self.inputs.append(slot)
        for number, name in enumerate(template.size_names):
            node = self._given[number] = self.graph.placeholder(identifier(name))
            self.size_of[node] = Size(0, (GIVEN, number))
        for index, entry in enumerate(template.entries):
            self._switch(entry.context)
            changes = changes_in(entry.out)
            containers = self._containers(entry, changes) if changes else {}
            if entry.kernels is not None:
                self.graph.call_function(enter_attention_kernels, (entry.kernels,))
            node = self._node_of(entry, containers)
            if entry.kernels is not None:
                self.graph.call_function(leave_block)
            self.entry_of[node] = index
            self._results.append(node)
            if result_in(entry.out) is entry.out:
                self._take_parts(entry.out, node, node, ())
                continue
            self._take_parts(result_in(entry.out), node, node, (), ("result",))
            for number, object in enumerate(objects_in(entry.out)):
                self._take_changes_of_object(object, node, number)
            for place, content in changes.items():
                self._take_changes(content, node, containers[place], place)
        self._switch(template.context)
        self.graph.output(self._output())

    def _containers(self, entry: TapeEntry, changes: dict[Place, Any]) -> dict[Place, fx.Node]:
        """Make a list or dict for each argument that the call changes."""
        made: dict[Place, fx.Node] = {}
        for place in reversed(changes):  # what is inside another one comes first
            first, *keys = place if type(place) is tuple else (place,)
            content: Any = entry.args[first] if type(first) is int else entry.kwargs[first]  # type: ignore[index]
            for key in keys:
                content = next(item for name, item, _ in _members(content) if name == key)
            operand = self._argument(content, place, made)
            if type(content) is Struct:
                made[place] = operand
            else:
                function = make_list if type(content) is list else make_dict
                made[place] = self.graph.call_function(function, (operand,))
        return made

    def _argument(self, template: Any, place: Place, containers: dict[Place, fx.Node]) -> Any:
        """Return an argument with the lists, dicts and dataclasses in it that its call changes."""
        if place in containers:
            return containers[place]
        here = place if type(place) is tuple else (place,)
        if not any(type(each) is tuple and each[: len(here)] == here for each in containers):
            return self._operand(template)
        items = [self._argument(item, (*here, key), containers) for key, item, _ in _members(template)]
        if type(template) is dict:
            return dict(zip(template, items))
        if type(template) is Struct:
            return self.graph.call_function(struct_maker(template), tuple(items))
        return type(template)(items)

    def _take_changes(self, content: Any, call: fx.Node, container: fx.Node, place: Place) -> None:
        """Give everything that a call put into a container its node: an item taken out of that."""
        new = [member for member in _members(content) if self._has_new_slot(member[1])]
        if not new:
            return
        changed = self.graph.call_function(changed_by, (container, call))
        self.part_of[changed] = (call, ("changed", place))
        for key, item, by_name in new:
            part = self.graph.call_function(getattr if by_name else operator.getitem, (changed, key))
            self.part_of[part] = (call, ("changed", place, key))
            self._take_parts(item, call, part, ("changed", place, key), is_returned=False)

    def _take_changes_of_object(self, object: OpaqueSlot, call: fx.Node, number: int) -> None:
        """Give what a call put into an object its node, where the graph needs it: an attribute of the object then."""
        if self._needs(object):
            node: fx.Node = self._operand(OpaqueSlot(object.number, object.type))
            changed = self.graph.call_function(changed_by, (node, call))
            self.part_of[changed] = (call, ("objects", number))
            self._take_parts(object, call, changed, (), ("objects", number), is_returned=False)

    def _output(self) -> Any:
        """Return what the graph returns: what the body does, and what it leaves in objects that it changes."""
        template = _output_of(self.template)
        if not objects_in(template):
            return self._operand(template)
        objects = [
            (
                self._operand(OpaqueSlot(each.number, each.type)),
                {name: self._operand(item) for name, item in self._members_left(each).items()},
            )
            for each in objects_in(template)
        ]
        result, changed = (self._operand(item) for item in template.items[:2])
        return self.graph.call_function(struct_maker(template), (result, changed, objects))

    def _shown(self) -> tuple[fx.Node, ...]:
        """Return the nodes without those that only give objects among the arguments what they hold afterwards."""
        if not objects_in(_output_of(self.template)):
            return self.nodes
        hidden = {self.nodes[-1].args[0]}
        for node in reversed(self.nodes):
            helps = node.op in ("get_attr", "call_function") and node not in self.entry_of
            if helps and node.users and all(user in hidden for user in node.users):
                hidden.add(node)
        return tuple([node for node in self.nodes if node not in hidden])

    def _members_left(self, object: OpaqueSlot) -> dict[str, Any]:
        """Return what the attributes of an object are afterwards; ``...`` for those that are as they were."""
        given, contents = self._objects_given.get(object.number), object.contents
        assert contents is not None and contents.keys is not None
        before = given.contents if given is not None and given.contents is not None else Struct(object.type, (), [])
        earlier = dict(zip(before.keys or (), before.items))
        members = zip(contents.keys, contents.items)
        return {name: ... if name in earlier and _is_same(item, earlier[name]) else item for name, item in members}

    def _is_passed(self, kind: type, number: int) -> bool:
        if self._passed is None:
            entries = [(entry.args, entry.kwargs) for entry in self.template.entries]
            handed = [each.tensor for given in self.template.handed_over.values() for each in given]
            out = _output_of(self.template)
            left = [list(self._members_left(each).values()) for each in objects_in(out)]
            returned = out if not objects_in(out) else out.items[:2]
            self._passed = set(_numbers_in((entries, handed, returned, left), set()))
        return (kind, number) in self._passed

    def _has_new_slot(self, template: Any) -> bool:
        kind = type(template)
        if kind is Slot:
            return template.number not in self._node_of_slot
        if kind is OpaqueSlot:
            return template.number not in self._node_of_object
        return kind in _OPENED and any(self._has_new_slot(item) for _, item, _ in _members(template))

    def _node_of(self, entry: TapeEntry, containers: dict[Place, fx.Node]) -> fx.Node:
        function = entry.what
        name = getattr(function, "__name__", "op")
        passed: Any = (entry.args, entry.kwargs)
        if not is_call(entry) and name not in TAKE_SIZES:
            passed = sizes_as_tuples(passed)
        args = tuple([self._argument(arg, place, containers) for place, arg in enumerate(passed[0])])
        kwargs = {name: self._argument(arg, name, containers) for name, arg in passed[1].items()}
        if is_call(entry):
            handed = self.template.handed_over.get(len(self._results), ())
            for owner, name, tensor, is_registered in handed:
                put = enter_weight if is_registered else setattr
                self.graph.call_function(put, (self._module(owner), name, self._operand(tensor)))
            switched = self.template.switched.get(len(self._results), ())
            for owner, name, content in switched:
                target = self._class(owner) if isinstance(owner, type) else self._module(owner)
                self.graph.call_function(enter_attribute, (target, name, content))
            node = self.graph.create_node("call_module", self._module_target(entry.what), args, kwargs)
            for _ in (*switched, *[each for each in handed if each.is_registered]):
                self.graph.call_function(leave_block)
            return node
        if function in OPERATORS:
            return self.graph.create_node("call_function", OPERATORS[function], args, kwargs, name=name.strip("_"))
        if name == "__get__":
            attribute = function.__self__.__name__
            return self.graph.create_node("call_function", getattr, (args[0], attribute), {}, name=attribute)
        if name == "__set__":
            attribute = function.__self__.__name__
            return self.graph.create_node("call_function", setattr, (args[0], attribute, args[1]), {})
        if getattr(Tensor, name, None) is function and args:
            return self.graph.create_node("call_method", name, args, kwargs, name=name.strip("_"))
        return self.graph.create_node("call_function", importable(function), args, kwargs, name=name.strip("_") or "op")

    def _module_target(self, module: str | nn.Module) -> str:
        if isinstance(module, str):
            return module
        target = f"_unregistered_{type(module).__name__}_{len(self.constants)}"
        for known, constant in self.constants.items():
            if constant is module:
                return known
        self.constants[target] = module
        return target

    def _module(self, module: str | nn.Module) -> fx.Node:
        target = self._module_target(module)
        return self._constant(target, module) if target in self.constants else self._attribute(Attribute(target, None))

    def _class(self, kind: type) -> fx.Node:
        known = next((target for target, constant in self.constants.items() if constant is kind), None)
        return self._constant(known or f"_class_{kind.__name__}_{len(self.constants)}", kind)

    def _switch(self, context: Context) -> None:
        """Add the calls that lead to this grad, inference and autocast state."""
        for function, args in self._blocks.switches(context):
            self.graph.call_function(function, args)

    def _operand(self, template: Any) -> Any:
        kind = type(template)
        if kind is Slot:
            return self._node_of_slot[template.number]
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
            return self.graph.call_function(struct_maker(template), tuple(items))
        if kind is TensorInObject:
            return self._tensor_in_object(template)
        if kind is AssignedByCall:  # each time anew: a call in between may assign another
            node = self.graph.call_function(getattr, (self._module(template.owner), template.name))
            for key, by_name in template.steps:
                node = self.graph.call_function(getattr if by_name else operator.getitem, (node, key))
            self.assigned[node] = template
            return node
        if kind is OpaqueSlot:
            if template.number in self._node_of_object:
                return self._node_of_object[template.number]
            slot = self._objects_given.get(template.number)
            if slot is None and template.contents is not None:
                slot = template
            elif self._changes_objects:
                slot = None
            if slot is not None:
                return self._made_object(slot)
            return self._constant(f"_object_{template.number}_{template.type.__name__}", Absent(template))
        is_written = kind in ATOMS or issubclass(kind, (int, float, complex, str))
        if not is_written or kind is type or kind in NUMPY_SCALARS:
            return self._constant(f"_constant_{len(self.constants)}", template)
        return template

    def _made_object(self, slot: OpaqueSlot) -> fx.Node:
        """Make an object from what it holds."""
        contents: Any = slot.contents
        items = tuple([self._operand(item) for item in contents.items])
        node = self._node_of_object[slot.number] = self.graph.call_function(struct_maker(contents), items)
        self.object_of[node] = slot.number
        return node

    def _attribute(self, attribute: Attribute) -> fx.Node:
        key = attribute.name if attribute.name is not None else id(attribute.tensor)
        node = self._attributes.get(key)
        if node is None:
            if attribute.name is None:
                target = f"_tensor_constant_{len(self.constants)}"
                self.constants[target] = attribute.tensor
            else:
                target = attribute.name
            node = self._attributes[key] = self.graph.create_node("get_attr", target)
        return node

    def _tensor_in_object(self, place: TensorInObject) -> fx.Node:
        node: fx.Node = self._operand(place.object)
        for key, by_name in place.steps:
            node = self.graph.call_function(getattr if by_name else operator.getitem, (node, key))
        self.inside[node] = place
        return node

    def _constant(self, target: str, constant: Any) -> fx.Node:
        node = self._attributes.get(target)
        if node is None:
            self.constants[target] = constant
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
                if head not in ("node", GIVEN):
                    self.size_of[node] = size
            self._sizes[id(size)] = node
        return node

    def _computation(self, head: Any, parts: tuple[Any, ...]) -> fx.Node:
        if head == "size":
            return self.graph.call_method("size", (self._node_of_slot[parts[0]], parts[1]))
        if head == "numel":
            return self.graph.call_method("numel", (self._node_of_slot[parts[0]],))
        if head == GIVEN:
            return self._given[parts[0]]
        return self._results[parts[0]] if head == "node" else self.graph.call_function(head, parts)

    def _take_parts(
        self,
        template: Any,
        whole: fx.Node,
        node: fx.Node,
        where: tuple[Any, ...],
        before: tuple[Any, ...] = (),
        is_returned: bool = True,
    ) -> None:
        """Give every slot in a result its node: the result itself, or an item taken out of it.

        ``where`` are the keys that lead to the item, ``before`` those that lead to the result in what a call leaves. A
        tensor from before that it returns under the same name was written to, under whichever name it is used next. (In
        a recorded graph each tensor has but one name, and comes from where it was returned last.)
        """
        kind = type(template)
        if kind is Slot:
            if template.number not in self._node_of_slot:
                self._node_of_slot[template.number] = node
            elif is_returned:
                first = self.template.names.get(template.number, template.number)
                for slot in self._slots_of.get(first, (first,)):
                    if slot in self._node_of_slot:
                        self._node_of_slot[slot] = node
        elif kind in _OPENED or kind is OpaqueSlot:
            if kind is OpaqueSlot:
                self._node_of_object.setdefault(template.number, node)
            for key, item, by_name in _members(template):
                if self._needs(item) if kind is OpaqueSlot else _has_slot(item):
                    part = self.graph.call_function(getattr if by_name else operator.getitem, (node, key))
                    self.part_of[part] = (whole, (*before, *where, key))
                    self._take_parts(item, whole, part, (*where, key), before, is_returned and kind is not OpaqueSlot)

    def _needs(self, template: Any) -> bool:
        """Is there something in what an object holds that the graph passes on, and has from nowhere else?"""
        return any(
            self._is_passed(kind, number)
            and number not in (self._node_of_slot if kind is Slot else self._node_of_object)
            for kind, number in _numbers_in(template, set())
        )


def _output_of(template: GraphTemplate) -> Any:
    """Return the template of a result, and of the objects that the graph itself changes."""
    out = template.out
    if result_in(out) is out:
        return out
    own = [
        each for each in objects_in(out) if each.contents is not None and each.number not in template.changed_by_calls
    ]
    return out.items[0] if not own and not out.items[1] else out.with_items([*out.items[:2], own])


def _is_same(one: Any, other: Any) -> bool:
    """Are two templates of one graph the same?"""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is Slot or kind is OpaqueSlot:
        return bool(one.number == other.number)
    if kind in _OPENED:
        mine, theirs = _members(one), _members(other)
        same = len(mine) == len(theirs) and all(x[0] == y[0] and _is_same(x[1], y[1]) for x, y in zip(mine, theirs))
        return same and (kind is not Struct or one.type is other.type)
    return one is other or (kind in ATOMS and is_same(one, other))


def _slots_in_objects(template: Any, inside: bool = False) -> Iterator[int]:
    """Yield the slots of tensors in objects that can be made from what they hold."""
    if type(template) is Slot:
        if inside:
            yield template.number
    elif type(template) in _OPENED or type(template) is OpaqueSlot:
        for _, item, _ in _members(template):
            yield from _slots_in_objects(item, inside or type(template) is OpaqueSlot)


def _objects_in(template: Any) -> Iterator[tuple[int, OpaqueSlot]]:
    """Yield the objects in a template that can be made from what they hold, by number."""
    if type(template) is OpaqueSlot and template.contents is not None:
        yield template.number, template
    if type(template) in _OPENED or type(template) is OpaqueSlot:
        for _, item, _ in _members(template):
            yield from _objects_in(item)


def _numbers_in(template: Any, sizes: set[int]) -> Iterator[tuple[type, int]]:
    """Yield kind and number of every tensor and object in a template, of those whose size it takes as well.

    ``sizes`` are the ids of sizes that have been looked through: one may be in very many others.
    """
    kind = type(template)
    if kind is Slot or kind is OpaqueSlot:
        yield kind, template.number
    elif kind is Size and id(template) not in sizes:
        sizes.add(id(template))
        head, *operands = template.expression
        if head in ("size", "numel"):
            yield Slot, operands[0]
        elif head != "node":
            yield from _numbers_in(operands, sizes)
    if kind in _OPENED or kind is OpaqueSlot:
        for _, item, _ in _members(template):
            yield from _numbers_in(item, sizes)


def _members(template: Any) -> list[tuple[Any, Any, bool]]:
    """Return (key, item, is the key an attribute's name) of a container in a template."""
    if type(template) is OpaqueSlot:
        return [] if template.contents is None else _members(template.contents)
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
    if kind is Slot or kind is OpaqueSlot:
        return True
    return kind in _OPENED and any(_has_slot(item) for _, item, _ in _members(template))


_OPENED = frozenset((tuple, list, dict, Struct, slice))


class Absent:
    """A placeholder for an object that the graph does not hold, such as a cache that is filled while the body runs.

    ``number`` is the object's in the template. The graph of one call may have the object itself in its place.
    """

    def __init__(self, slot: OpaqueSlot) -> None:
        self.type = slot.type
        self.number = slot.number
