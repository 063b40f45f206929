"""Match a tape with a template. A match is proof that the template is the graph of the call.

No Python of the model runs. Entries of the template are compared one by one with entries of the tape: slots are bound
to tensors as they appear, sizes are computed from the bound tensors, names are looked up in the module of the call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from fxdebug.capture.graphs.names import follow, member
from fxdebug.capture.graphs.symbolic_size import Size, evaluate, is_given
from fxdebug.capture.graphs.template import (
    AssignedByCall,
    Attribute,
    GraphTemplate,
    OpaqueSlot,
    Slot,
    TensorInObject,
    is_call,
)
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.encoding import ATOMS, OpaqueArg, Struct, have_same_keys, is_same, leaves_in
from fxdebug.capture.tape.made_modules import is_same_kind_of
from fxdebug.capture.tensors.tensor_ref import TensorId, TensorRef, WeightRef
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.native.dispatch import natively


def match_tape(template: GraphTemplate, tape: CallTape, values: ValueTable) -> Match | None:
    """Return the bindings under which the template equals the tape, or ``None`` if there are none."""
    attempt = Match(template, tape, values)
    tensor_ids = _matched_plainly(template, tape, values.refs)
    if tensor_ids is not None:
        attempt.tensor_ids = tensor_ids
        return attempt if attempt.has_one_tensor_written() else None
    return attempt if attempt.holds() else None


@natively("matched_plainly", Slot, Attribute, TensorId, WeightRef, ATOMS)
def _matched_plainly(
    template: GraphTemplate, tape: CallTape, refs: dict[int, TensorRef]
) -> list[TensorId | None] | None:
    """Return the tensors by slot if a template of slots, names and constants alone matches; else ask :class:`Match`."""
    return None


def _has_slot(template: Any, number: int) -> bool:
    return any(type(leaf) is Slot and leaf.number == number for leaf in leaves_in(template))


def assigned_at(module: nn.Module, place: AssignedByCall, values: ValueTable) -> TensorRef | None:
    """Return the tensor that is in this attribute now, if the run has met it."""
    with contextlib.suppress(AttributeError, LookupError, TypeError):
        tensor = follow(getattr(member(module, place.owner), place.name), place.steps)
        return values.lookup(tensor) if isinstance(tensor, torch.Tensor) else None
    return None


def assigned_tensors(module: nn.Module, places: Iterable[AssignedByCall], values: ValueTable) -> dict[Any, TensorId]:
    """Return the tensors that are in these attributes now, as far as a run has met them."""
    found = [(place, assigned_at(module, place, values)) for place in places]
    return {place: ref.tensor_id for place, ref in found if ref is not None}


class Match:
    """A template bound to one call: ``tensor_ids`` by slot, ``objects`` by number of the opaque object,
    ``sizes`` by number of the integer among the arguments.

    ``failed_at`` is the entry of the template at which it failed, if it failed at one.
    """

    __slots__ = ("_answers", "_shapes", "_values", "failed_at", "objects", "sizes", "tape", "template", "tensor_ids")

    def __init__(self, template: GraphTemplate, tape: CallTape, values: ValueTable) -> None:
        self.template = template
        self.tape = tape
        self.tensor_ids: list[TensorId | None] = [None] * template.slots
        self.objects: dict[int, Any] = {}
        self.sizes: dict[int, int] = {}
        self.failed_at: int | None = None
        self._answers: dict[int, Any] = {}
        self._values = values
        self._shapes: dict[int, tuple[int, ...]] = {}  # after operations in place

    def holds(self) -> bool:
        """Does the template match the tape? If so, ``tensor_ids`` and ``objects`` are complete afterwards."""
        try:
            return self._holds() and self.has_one_tensor_written()
        except (IndexError, ArithmeticError):  # a size does not exist: too few dimensions, or a division by zero
            return False

    def has_one_tensor_written(self) -> bool:
        """Is what the graph writes to under one name a single tensor under all of its names, as when it was traced?"""
        template, bound = self.template, self.tensor_ids
        for slot, first in template.names.items() if template.written_names else ():
            if first in template.written_names and bound[slot] != bound[first]:
                made = (index for index, entry in enumerate(template.entries) if _has_slot(entry.out, slot))
                self.failed_at = next(made, None)
                return False
        return True

    def _holds(self) -> bool:
        template, tape = self.template, self.tape
        if tape.unobserved or tape.untraceable or tape.context != template.context:
            return False
        if tape.raised and not all(raised.leaves_nothing for raised in tape.raised):
            return False
        if not self._bind(template.args, tape.args):
            return False
        if (template.kwargs or tape.kwargs) and not self._bind(template.kwargs, tape.kwargs):
            return False
        for index, expected in enumerate(template.entries):
            if index >= len(tape.entries) or not self._same(index, expected, tape.entries[index]):
                self.failed_at = index
                return False
        if len(tape.entries) != len(template.entries):
            self.failed_at = len(template.entries)
            return False
        return self._equal(template.out, tape.out)

    def _same(self, index: int, expected: TapeEntry, entry: TapeEntry) -> bool:
        if expected.context != entry.context:
            return False
        if expected.kernels is not None and expected.kernels != entry.kernels:
            return False
        if is_call(expected):
            if not self._is_child(expected.what, entry.what):
                return False
        elif type(entry.what) is not type(expected.what) or entry.what != expected.what:
            return False
        if not self._equal(expected.args, entry.args):
            return False
        if (expected.kwargs or entry.kwargs) and not self._equal(expected.kwargs, entry.kwargs):
            return False
        if entry.changed is not None:
            self._shapes[entry.changed[0]] = entry.changed[1]
        elif type(entry.out) is TensorId and (entry.out in self._shapes or entry.out in self.tape.input_layouts):
            # it has the shape again that it had first
            self._shapes[entry.out] = self._values.first_values[entry.out].shape
        if type(expected.out) is int:
            self._answers[index] = entry.out
            return type(entry.out) is int  # an answer that stays symbolic (item): checked where it is used
        return self._bind(expected.out, entry.out)

    def _is_child(self, expected: str | nn.Module, module: Any) -> bool:
        if not isinstance(module, nn.Module):
            return False
        if not isinstance(expected, str):
            return module is expected or is_same_kind_of(module, expected)
        try:
            return member(self.tape.module, expected) is module
        except AttributeError:
            return False

    def handed_over(self) -> set[TensorId]:
        """Return the tensors that the body hands to its calls in attributes."""
        tensors = [each.tensor for given in self.template.handed_over.values() for each in given]
        ids = [self.tensor_ids[each.number] for each in tensors if type(each) is Slot]
        return {tensor_id for tensor_id in ids if tensor_id is not None}

    def shape(self, slot: int) -> tuple[int, ...]:
        """Return the shape of the tensor bound to a slot."""
        tensor_id = self.tensor_ids[slot]
        assert tensor_id is not None
        known = self._shapes.get(tensor_id)
        if known is not None:
            return known
        given = self.tape.input_layouts.get(tensor_id)
        return self._values.first_values[tensor_id].shape if given is None else given[0]

    def value_of(self, size: Size) -> int:
        """Return the value of a size expression under these bindings."""
        return evaluate(size.expression, self._size, lambda index: int(self._answers[index]), self.sizes)

    def _size(self, slot: int, dim: int) -> int:
        shape = self.shape(slot)
        return torch.Size(shape).numel() if dim < 0 else shape[dim]

    def _equal(self, template: Any, code: Any) -> bool:
        kind = type(template)
        if kind is Slot:
            return type(code) is TensorId and self.tensor_ids[template.number] == code
        if kind in ATOMS:
            return type(code) is kind and (template is code or is_same(template, code))
        if kind is tuple:  # a fast path for the arguments of operations, which mostly are tensors
            if type(code) is not tuple or len(code) != len(template):
                return False
            for x, y in zip(template, code):
                if type(x) is Slot:
                    if type(y) is not TensorId or self.tensor_ids[x.number] != y:
                        return False
                elif x is not y and not self._equal(x, y):
                    return False
            return True
        if kind is Attribute:
            if type(code) is OpaqueArg:
                return self._attribute(template) is code.object
            return type(code) is TensorId and (self._tensor_id_of(template) == code or self._is_anew(template, code))
        if kind is TensorInObject:
            return type(code) is TensorId and self._tensor_id_in_object(template) == code
        if kind is AssignedByCall:
            return type(code) is TensorId and self._tensor_id_assigned(template) == code
        if kind is Size:
            return type(code) is int and self.value_of(template) == code
        return self._parts(template, code, self._equal)

    def _bind(self, template: Any, code: Any) -> bool:
        """Compare as ``_equal`` does, but bind a slot that is still free to the tensor in its place on the tape."""
        if type(template) is Slot:
            if type(code) is not TensorId:
                return False
            bound = self.tensor_ids[template.number]
            if bound is None:
                self.tensor_ids[template.number] = code
                return True
            return bound == code
        if type(template) in (tuple, list, dict, Struct, slice, OpaqueSlot):
            return self._parts(template, code, self._bind)
        if is_given(template):
            return type(code) is int and self.sizes.setdefault(template.expression[1], code) == code
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
            return all(map(same, template.values(), code.values()))
        if kind is slice:
            return type(code) is slice and all(
                same(getattr(template, name), getattr(code, name)) for name in ("start", "stop", "step")
            )
        if kind is Struct:
            if type(code) is not Struct or code.type is not template.type or code.keys != template.keys:
                return False
            return len(code.items) == len(template.items) and all(map(same, template.items, code.items))
        if kind is OpaqueSlot:
            if type(code) is not OpaqueArg or type(code.object) is not template.type:
                return False
            if self.objects.setdefault(template.number, code.object) is not code.object:
                return False
            return template.contents is None or same(template.contents, code.contents)
        return bool(type(code) is kind and code == template)

    def _attribute(self, attribute: Attribute) -> Any:
        try:
            return attribute.tensor if attribute.name is None else member(self.tape.module, attribute.name)
        except AttributeError:
            return None

    def _tensor_id_in_object(self, place: TensorInObject) -> TensorId | None:
        try:
            tensor = follow(self.objects[place.object.number], place.steps)
        except (KeyError, IndexError, AttributeError, TypeError):
            return None
        entry = self._values.lookup(tensor) if isinstance(tensor, torch.Tensor) else None
        return None if entry is None else entry.tensor_id

    def _tensor_id_assigned(self, place: AssignedByCall) -> TensorId | None:
        known = self.tape.tensors_assigned
        return (assigned_tensors(self.tape.module, [place], self._values) if known is None else known).get(place)

    def _is_anew(self, attribute: Attribute, tensor_id: TensorId) -> bool:
        """Is a tensor from outside one that each run makes anew in the same place, and no operation of the body?"""
        tensor, names = attribute.tensor, self.template.names
        if tensor is None or any(
            bound == tensor_id and slot not in names for slot, bound in enumerate(self.tensor_ids)
        ):
            return False
        return self._values.lies_where(tensor, tensor_id)

    def _tensor_id_of(self, attribute: Attribute) -> TensorId | None:
        tensor = self._attribute(attribute)
        entry = self._values.lookup(tensor) if isinstance(tensor, torch.Tensor) else None
        return None if entry is None else entry.tensor_id
