"""Is this tape an instance of that pattern? A match is proof that the pattern is the graph of the call.

No Python of the model runs: the nodes are walked against the entries, slots are bound to tensors as
they appear, sizes are computed from the bound tensors, names are looked up in this module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fxdebug.capture.graphs.symbolic_size import Size, evaluate
from fxdebug.capture.graphs.template import Attribute, GraphTemplate, Node, OpaqueSlot, Slot, is_another_of, member
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.encoding import ATOMS, OpaqueArg, Struct, have_same_keys, is_same
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable


def match(pattern: GraphTemplate, body: CallTape, values: ValueTable) -> Match | None:
    """The bindings under which ``pattern`` is what ``body`` did, or ``None`` if it is not."""
    attempt = Match(pattern, body, values)
    return attempt if attempt.holds() else None


class Match:
    """A pattern bound to one call: ``uids`` by slot, ``objects`` by number of the opaque object."""

    def __init__(self, pattern: GraphTemplate, body: CallTape, values: ValueTable) -> None:
        self.pattern = pattern
        self.body = body
        self.uids: list[TensorId | None] = [None] * pattern.slots
        self.objects: dict[int, Any] = {}
        self.failed_at: int | None = None  # the node at which it failed
        self._answers: dict[int, Any] = {}
        self._values = values
        self._shapes: dict[TensorId, tuple[int, ...]] = {uid: facts[0] for uid, facts in body.before.items()}

    def holds(self) -> bool:
        """Walk the tape; afterwards ``uids`` and ``objects`` are complete if it is true."""
        try:
            return self._holds()
        except (IndexError, ArithmeticError):  # there is no such size: of tensors with fewer dimensions, or by zero
            return False

    def _holds(self) -> bool:
        pattern, body = self.pattern, self.body
        if body.suspended or body.hazard or body.context != pattern.context:
            return False
        if not self._bind(pattern.args, body.args) or not self._bind(pattern.kwargs, body.kwargs):
            return False
        for index, node in enumerate(pattern.nodes):
            if index >= len(body.entries) or not self._same(index, node, body.entries[index]):
                self.failed_at = index
                return False
        if len(body.entries) != len(pattern.nodes):
            self.failed_at = len(pattern.nodes)
            return False
        return self._equal(pattern.out, body.out)

    def _same(self, index: int, node: Node, entry: TapeEntry) -> bool:
        if node.context != entry.context:
            return False
        if node.function is not None:
            if type(entry.what) is not type(node.function) or entry.what != node.function:
                return False
        elif not self._is_child(node.module, entry.what):
            return False
        if not self._equal(node.args, entry.args):
            return False
        if (node.kwargs or entry.kwargs) and not self._equal(node.kwargs, entry.kwargs):
            return False
        if entry.changed is not None:
            self._shapes[TensorId(entry.changed[0])] = entry.changed[1]
        if type(node.out) is int:
            self._answers[index] = entry.out
            return type(entry.out) is int  # an answer that stays symbolic (item): checked where it is used
        return self._bind(node.out, entry.out)

    def _is_child(self, wanted: str | nn.Module | None, module: Any) -> bool:
        if not isinstance(module, nn.Module):
            return False
        if not isinstance(wanted, str):
            return module is wanted or is_another_of(module, wanted)
        try:
            return member(self.body.module, wanted) is module
        except AttributeError:
            return False

    def shape(self, slot: int) -> tuple[int, ...]:
        """The shape of the tensor bound to a slot."""
        uid = self.uids[slot]
        assert uid is not None
        known = self._shapes.get(uid)
        return self._values.first_values[uid].shape if known is None else known

    def value_of(self, size: Size) -> int:
        """A size expression under these bindings."""
        return evaluate(size.expression, self._size, lambda index: int(self._answers[index]))

    def _size(self, slot: int, dim: int) -> int:
        shape = self.shape(slot)
        return torch.Size(shape).numel() if dim < 0 else shape[dim]

    def _equal(self, template: Any, code: Any) -> bool:
        kind = type(template)
        if kind is Slot:
            return type(code) is TensorId and self.uids[template.number] == code
        if kind in ATOMS:
            return type(code) is kind and (template is code or is_same(template, code))
        if kind is tuple:  # the arguments of an operation: most of them are tensors
            if type(code) is not tuple or len(code) != len(template):
                return False
            for x, y in zip(template, code):
                if type(x) is Slot:
                    if type(y) is not TensorId or self.uids[x.number] != y:
                        return False
                elif x is not y and not self._equal(x, y):
                    return False
            return True
        if kind is Attribute:
            if type(code) is OpaqueArg:
                return self._held_by(template) is code.thing
            return type(code) is TensorId and self._uid_of(template) == code
        if kind is Size:
            return type(code) is int and self.value_of(template) == code
        return self._parts(template, code, self._equal)

    def _bind(self, template: Any, code: Any) -> bool:
        """Like equal, where a slot that is still free takes what stands there."""
        if type(template) is Slot:
            if type(code) is not TensorId:
                return False
            bound = self.uids[template.number]
            if bound is None:
                self.uids[template.number] = code
                return True
            return bound == code
        if type(template) in (tuple, list, dict, Struct, slice):
            return self._parts(template, code, self._bind)
        return self._equal(template, code)

    def _parts(self, template: Any, code: Any, same: Any) -> bool:
        kind = type(template)
        if kind is tuple or kind is list:
            if type(code) is not kind or len(code) != len(template):
                return False
            for x, y in zip(template, code):
                if not same(x, y):
                    return False
            return True
        if kind is dict:
            if type(code) is not dict or not have_same_keys(template, code):
                return False
            return all(same(item, code[key]) for key, item in template.items())
        if kind is slice:
            return type(code) is slice and all(
                same(getattr(template, name), getattr(code, name)) for name in ("start", "stop", "step")
            )
        if kind is Struct:
            if type(code) is not Struct or code.type is not template.type or code.keys != template.keys:
                return False
            return len(code.items) == len(template.items) and all(map(same, template.items, code.items))
        if kind is OpaqueSlot:
            if type(code) is not OpaqueArg or type(code.thing) is not template.type:
                return False
            return self.objects.setdefault(template.number, code.thing) is code.thing
        return bool(type(code) is kind and code == template)

    def _held_by(self, attribute: Attribute) -> Any:
        try:
            return attribute.tensor if attribute.name is None else member(self.body.module, attribute.name)
        except AttributeError:
            return None

    def _uid_of(self, attribute: Attribute) -> TensorId | None:
        tensor = self._held_by(attribute)
        entry = self._values.lookup(tensor) if isinstance(tensor, torch.Tensor) else None
        return None if entry is None else entry.tensor_id
