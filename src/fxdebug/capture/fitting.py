"""A pattern as Python code of its own: one that asks, in a third of the time, what ``match`` asks node by node.

Most bodies are a few operations on tensors, parameters and constants. For patterns of these, :func:`fitting_of`
writes a function that takes a tape apart and compares it in one go. It says yes only where ``match`` would, and
where it does not, ``match`` has the word: whatever is rare (answers, changed metadata, objects made of members) is
left to that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fxdebug.capture.body import Body
from fxdebug.capture.coding import ATOMS, Opaque, Struct, is_same
from fxdebug.capture.pattern import Attribute, Held, Node, Pattern, Slot
from fxdebug.capture.seen import Seen, Uid
from fxdebug.capture.sizes import Size
from fxdebug.data.values import Value

Fitting = Callable[[Body, dict[int, Seen], list[Value]], "list[Uid | None] | None"]
"""The tensors in the pattern's slots if a body fits. The others: what is known of tensors by ``id``, and by ``Uid``."""

MOST_NODES = 64  # of larger ones the code would take longer to make than it saves


def fitting_of(pattern: Pattern) -> Fitting | None:
    """The function for a pattern; ``None`` if there is something in it that is left to ``match``.

    It is for bodies that are neither suspended nor a hazard.
    """
    if len(pattern.nodes) > MOST_NODES:
        return None
    try:
        return _Writer(pattern).function()
    except (_Rare, SyntaxError, RecursionError, MemoryError):  # the latter: it nests deeper than Python reads
        return None


class _Rare(Exception):
    """Something that is left to ``match``."""


class _Writer:
    """Writes the lines of one function. Each that ends in ``return`` says: not this way."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "Uid": Uid,
            "Opaque": Opaque,
            "Struct": Struct,
            "Module": nn.Module,
            "is_same": is_same,
            "STRINGS": {str},
        }
        self._bound: set[int] = set()
        self._objects: set[int] = set()
        self._shaped: set[int] = set()
        self._sizes: dict[int, str] = {}  # by ``id``: what has them
        self._count = 0

    def function(self) -> Fitting:
        """The function itself."""
        pattern = self._pattern
        self._unless(f"body.context == {self._constant(pattern.context)}")
        self._compare(pattern.args, "body.args", binds=True)
        self._keywords(pattern.kwargs, "body.kwargs", binds=True)
        self._lines.append("module, entries = body.module, body.entries")
        self._unless(f"len(entries) == {len(pattern.nodes)}")
        for index, node in enumerate(pattern.nodes):
            self._node(index, node)
        self._compare(pattern.out, "body.out")
        slots = [f"slot{i}" if i in self._bound else "None" for i in range(pattern.slots)]
        lines = [
            "def fits(body, seen, objects):",
            *[f"    {line}" for line in self._lines],
            f"    return [{', '.join(slots)}]",
        ]
        exec("\n".join(lines), self._names)
        made: Fitting = self._names["fits"]
        return made

    def _node(self, index: int, node: Node) -> None:
        if type(node.out) is int:
            raise _Rare  # an answer
        self._lines.append(f"what, args, kwargs, out, context, _, changed, _, _, _ = entries[{index}]")
        self._unless("changed is None")
        self._unless(f"context == {self._constant(node.context)}")
        if node.function is not None:
            self._unless(f"what is {self._constant(node.function)}")
        elif type(node.module) is str and node.module:
            self._reach(node.module)
            self._unless("held is what and isinstance(what, Module)")
        else:
            raise _Rare
        self._compare(node.args, "args")
        self._keywords(node.kwargs, "kwargs")
        self._compare(node.out, "out", binds=True)

    def _compare(self, template: Any, code: str, binds: bool = False) -> None:
        """Lines that compare what stands at ``code`` with a template; one that ``binds`` may fill slots."""
        kind = type(template)
        if kind is Slot:
            self._slot(template.number, code, binds)
        elif kind in ATOMS:
            wanted, kind_of_it = self._constant(template), self._constant(kind)
            self._unless(f"type({code}) is {kind_of_it} and ({code} is {wanted} or is_same({wanted}, {code}))")
        elif kind is tuple or kind is list:
            self._unless(f"type({code}) is {kind.__name__} and len({code}) == {len(template)}")
            items = [self._new() for _ in template]
            if items:
                self._lines.append(f"{', '.join(items)}, = {code}")
            for item, inside in zip(items, template):
                self._compare(inside, item, binds)
        elif kind is Struct:
            same = f"{code}.type is {self._constant(template.type)} and {code}.keys == {self._constant(template.keys)}"
            self._unless(f"type({code}) is Struct and {same}")
            self._compare(template.items, f"{code}.items", binds)
        elif kind is slice:
            self._unless(f"type({code}) is slice")
            for name in ("start", "stop", "step"):
                self._compare(getattr(template, name), f"{code}.{name}", binds)
        elif kind is Size:
            wanted = self._size(template)
            self._unless(f"type({code}) is int and {code} == {wanted}")
        elif kind is Held:
            self._held(template, code)
        elif kind is Attribute and template.name is not None and template.name:
            self._attribute(template.name, code)
        else:
            raise _Rare

    def _keywords(self, template: dict[str, Any], code: str, binds: bool = False) -> None:
        if not template:
            self._unless(f"not {code}")
            return
        if any(type(name) is not str for name in template):
            raise _Rare
        self._unless(f"list({code}) == {self._constant(list(template))} and set(map(type, {code})) == STRINGS")
        for name, inside in template.items():
            item = self._new()
            self._lines.append(f"{item} = {code}[{self._constant(name)}]")
            self._compare(inside, item, binds)

    def _slot(self, number: int, code: str, binds: bool) -> None:
        self._unless(f"type({code}) is Uid")
        if number in self._bound:
            self._unless(f"{code} == slot{number}")
        elif binds:
            self._bound.add(number)
            self._lines.append(f"slot{number} = {code}")
        else:
            raise _Rare  # nothing is ever there

    def _attribute(self, name: str, code: str) -> None:
        self._unless(f"type({code}) is Uid or type({code}) is Opaque")
        self._reach(name)
        self._lines.append("entry = seen.get(id(held))")
        is_tensor = f"type({code}) is Uid and entry is not None and entry() is held and entry.uid == {code}"
        self._unless(f"({is_tensor}) or (type({code}) is Opaque and held is {code}.thing)")

    def _reach(self, path: str) -> None:
        """Lines after which ``held`` is what the module holds under a name, which may have dots in it."""
        self._lines.append("held = module")
        self._lines += [f"held = getattr(held, {self._constant(name)}, None)" for name in path.split(".")]

    def _held(self, held: Held, code: str) -> None:
        """An object that only identity tells apart: the first one of a number is the one."""
        self._unless(f"type({code}) is Opaque and type({code}.thing) is {self._constant(held.type)}")
        if held.number in self._objects:
            self._unless(f"{code}.thing is object{held.number}")
        else:
            self._objects.add(held.number)
            self._lines.append(f"object{held.number} = {code}.thing")

    def _size(self, size: Any) -> str:
        """What computes a size; it is in the tensors that are bound by now."""
        if type(size) is not Size:
            return self._constant(size)
        known = self._sizes.get(id(size))
        if known is not None:
            return known
        head, *operands = size.expression
        if head == "size":
            wanted = self._dim(*operands)
        elif type(head) is str:
            raise _Rare  # the number of elements, an answer
        else:
            wanted = f"{self._constant(head)}({', '.join(map(self._size, operands))})"
        name = self._sizes[id(size)] = self._new()  # a line for each: they may nest deeply
        self._lines.append(f"{name} = {wanted}")
        return name

    def _dim(self, slot: int, dim: int) -> str:
        if slot not in self._bound or dim < 0:
            raise _Rare
        if slot not in self._shaped:
            self._shaped.add(slot)
            known = f"body.before[slot{slot}][0] if slot{slot} in body.before else objects[slot{slot}].shape"
            self._lines.append(f"shape{slot} = {known}")
        self._unless(f"len(shape{slot}) > {dim}")
        return f"shape{slot}[{dim}]"

    def _unless(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return None")

    def _constant(self, thing: Any) -> str:
        self._count += 1
        name = f"constant{self._count}"
        self._names[name] = thing
        return name

    def _new(self) -> str:
        self._count += 1
        return f"code{self._count}"
