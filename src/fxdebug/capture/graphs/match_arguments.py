"""Match the arguments of a traced body with those on its tape, and make templates of them.

While a body is traced, an argument has three forms: the *code* on the tape, the *argument* that the body's Python sees
in its place (for a tensor, a placeholder), and the *template* that is made of both.
"""

from __future__ import annotations

import weakref
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture import reasons
from fxdebug.capture.graphs.names import attribute_names, object_name, short_repr, steps_to
from fxdebug.capture.graphs.placeholder_tensor import PlaceholderTensor
from fxdebug.capture.graphs.symbolic_size import Shape, Size, plain
from fxdebug.capture.graphs.template import Attribute, GraphTemplate, Inside, OpaqueSlot, Slot
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.tape.argument_copies import ArgumentCopies
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.encoding import (
    ATOMS,
    OpaqueArg,
    Struct,
    have_same_keys,
    is_same,
    map_leaves,
    members_of,
    tensor_ids_in,
)
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.data.values import UNKNOWN, Value

Layout = tuple[tuple[int, ...], torch.dtype, bool]  # shape, dtype, requires_grad


class ArgumentMatcher:
    """The codes, placeholders and slots of one trace. Slots are numbered in ``template`` as tensors appear.

    ``layouts`` has shape, dtype and requires_grad of each tensor as they are at this point of the trace, and
    ``placeholders`` weak references to the placeholders that were made.
    """

    def __init__(self, tape: CallTape, values: ValueTable, template: GraphTemplate) -> None:
        self.layouts: dict[TensorId, Layout] = dict(tape.input_layouts)
        self.placeholders: list[weakref.ref[PlaceholderTensor]] = []
        self._tape = tape
        self._values = values
        self._template = template
        self._placeholder_of: dict[TensorId, PlaceholderTensor] = {}
        self._real: dict[TensorId, Tensor] = {}  # tensors that the body's Python reached without a placeholder
        self._objects: list[tuple[Any, Any]] = []  # (object in the trace, object on the tape), by number
        self._names = attribute_names(tape.module)

    def forget(self) -> None:
        """Let go of all placeholders."""
        self._placeholder_of.clear()
        self._real.clear()
        self._objects.clear()

    @property
    def objects(self) -> int:
        """The number of objects compared by identity."""
        return len(self._objects)

    def knows_all(self, code: Any) -> bool:
        """Did every tensor in this code come up in the trace?"""
        return all(tensor_id in self._placeholder_of or tensor_id in self._real for tensor_id in tensor_ids_in(code))

    # From codes to what the body's Python sees ---------------------------------------------------

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call's arguments: placeholders for tensors, and copies of opaque objects as they were.

        Raises :class:`CannotTrace` where an opaque object was not copied.
        """
        tape = self._tape
        if tape.has_opaque_args:
            if tape.argument_copies is None:
                raise CannotTrace(reasons.EARLIER_STATE_LOST())
            copies = tape.argument_copies
            fresh = ArgumentCopies(copies.copy)  # copied once more: the state that was kept must survive this trace
            originals = copies.originals()
            for copy, earlier in fresh.pairs.values():
                original = originals.get(id(earlier), earlier)
                if copy is not original and type(copy) not in (tuple, list, dict):
                    self._objects.append((copy, original))
        return self.decoded(tape.args), self.decoded(tape.kwargs)

    def decoded(self, code: Any) -> Any:
        """Return the argument that is passed to the body's Python for a code."""
        return map_leaves(code, self._decoded_leaf, Struct.build)

    def result_of(self, entry: TapeEntry) -> Any:
        """Return the result that the body's Python gets for an operation or a call."""
        for tensor_id in tensor_ids_in(entry.out):
            if tensor_id not in self.layouts:
                self.layouts[tensor_id] = _layout_of(self._values.first_values[tensor_id])
        return self.decoded(entry.out)

    def set_layout(self, tensor_id: TensorId, layout: Layout) -> None:
        """Record the layout of a tensor after an in-place operation."""
        self.layouts[tensor_id] = layout
        if tensor_id in self._placeholder_of:
            self._placeholder_of[tensor_id].gradient = layout[2]

    def _decoded_leaf(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            return self._tensor(code)
        if kind is OpaqueArg:
            for mine, recorded in self._objects:
                if recorded is code.object:
                    return mine
            self._objects.append((code.object, code.object))  # made by a child: passed on as it is
            return code.object
        return code

    def _tensor(self, tensor_id: TensorId) -> Tensor:
        known = self._placeholder_of.get(tensor_id)
        if known is not None:
            return known
        if tensor_id in self._real:
            return self._real[tensor_id]
        first = self._values.first_values[tensor_id]
        shape, dtype, gradient = self.layouts.get(tensor_id) or _layout_of(first)
        if (first.detail or "").startswith("inside"):
            raise CannotTrace(reasons.INSIDE_TRANSFORM())
        if first.layout != "strided" or (first.detail or "").startswith(("nested", "quantised")):
            kind = first.layout if first.detail is None else first.detail.split()[0].strip(":,")
            raise CannotTrace(reasons.NO_SYMBOL_FOR_KIND(kind=kind))
        if UNKNOWN in shape:
            raise CannotTrace(reasons.NO_SYMBOL_FOR_SIZE())
        if first.sharding is not None:
            shape = first.sharding.shape
            self.layouts[tensor_id] = (shape, dtype, gradient)
        stride = first.stride if shape == first.shape else None
        device = torch.device(first.device)
        placeholder = PlaceholderTensor(tensor_id, self._template.slots, shape, stride, dtype, device, gradient)
        self._template.slots += 1
        self._placeholder_of[tensor_id] = placeholder
        self.placeholders.append(weakref.ref(placeholder))
        return placeholder

    # From codes to templates ---------------------------------------------------------------------

    def template_of(self, code: Any) -> Any:
        """Return the template of a code that has been decoded."""
        return map_leaves(code, self._template_of_leaf)

    def _template_of_leaf(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            known = self._placeholder_of.get(code)
            if known is None:
                return self._inside(self._real[code]) or self._attribute(self._real[code])
            return Slot(known.slot)
        if kind is OpaqueArg:
            for number, (_, recorded) in enumerate(self._objects):
                if recorded is code.object:
                    return OpaqueSlot(number, type(recorded))
            self._objects.append((code.object, code.object))
            return OpaqueSlot(len(self._objects) - 1, type(code.object))
        return code

    # From what the body's Python passes to templates ---------------------------------------------

    def matched(self, argument: Any, code: Any) -> Any:
        """Return the template of an argument, which must match ``code`` on the tape.

        Raises :class:`CannotTrace` with the difference where it does not.
        """
        kind = type(argument)
        if kind is PlaceholderTensor:
            placeholder = self._placeholder_of.get(code) if type(code) is TensorId else None
            if placeholder is None or placeholder is not argument or placeholder.tensor_id != code:
                raise CannotTrace(reasons.OTHER_TENSOR())
            return Slot(placeholder.slot)
        if kind is Size:
            if type(code) is not int or plain(argument) != code:
                raise CannotTrace(reasons.OTHER_SIZE(now=plain(argument), then=repr(code)))
            return argument
        if kind in ATOMS:
            if type(code) is kind and (code is argument or is_same(code, argument)):
                return argument
            raise CannotTrace(reasons.OTHER_CONSTANT(now=short_repr(argument), then=short_repr(code)))
        if isinstance(argument, Tensor):
            return self._real_tensor(argument, code)
        if kind is Shape or kind is torch.Size or (kind is tuple and type(code) is Struct and code.type is torch.Size):
            return self._matched_sizes(argument, code)
        if kind is tuple or kind is list:
            if type(code) is not kind or len(code) != len(argument):
                raise CannotTrace(reasons.OTHER_LENGTH(kind=kind.__name__))
            return kind([self.matched(x, y) for x, y in zip(argument, code)])
        if kind is dict:
            if type(code) is not dict or not have_same_keys(argument, code):
                raise CannotTrace(reasons.OTHER_KEYS())
            return {key: self.matched(item, code[key]) for key, item in argument.items()}
        if kind is slice:
            if type(code) is not slice:
                raise CannotTrace(reasons.OTHER_KIND(kind="slice", then=short_repr(code)))
            return slice(*(self.matched(getattr(argument, n), getattr(code, n)) for n in ("start", "stop", "step")))
        if type(code) is Struct and code.type is kind:
            return self._matched_struct(argument, code)
        if type(code) is OpaqueArg:
            return self._matched_object(argument, code)
        if isinstance(argument, (int, float, complex, str, Enum)) and type(code) is kind and code == argument:
            return argument
        raise CannotTrace(reasons.OTHER_KIND(kind=kind.__name__, then=short_repr(code)))

    def _matched_sizes(self, sizes: Any, code: Any) -> Any:
        """Return a ``torch.Size`` or a tuple, whichever the tape has: Python may make either from a shape."""
        if type(code) is Struct and code.type is torch.Size:
            return code.with_items(list(self.matched(tuple(sizes), tuple(code.items))))
        return self.matched(tuple(sizes), code)

    def _matched_struct(self, argument: Any, code: Struct) -> Struct:
        members = members_of(argument)
        if members is None or members[0] != code.keys or len(members[1]) != len(code.items):
            raise CannotTrace(reasons.OTHER_FIELDS(kind=code.type.__name__))
        return code.with_items([self.matched(x, y) for x, y in zip(members[1], code.items)])

    def _matched_object(self, argument: Any, code: OpaqueArg) -> OpaqueSlot | Attribute:
        if argument is code.object:
            name = object_name(self._tape.module, argument)
            if name is not None:
                return Attribute(name, None)
        for number, (mine, recorded) in enumerate(self._objects):
            if mine is argument:
                if recorded is not code.object:
                    raise CannotTrace(reasons.OTHER_OBJECT(kind=type(argument).__name__))
                return OpaqueSlot(number, type(argument))
        if argument is not code.object and (
            type(argument) is not type(code.object) or any(recorded is code.object for _, recorded in self._objects)
        ):
            raise CannotTrace(reasons.OTHER_OBJECT(kind=type(argument).__name__))
        self._objects.append((argument, code.object))
        return OpaqueSlot(len(self._objects) - 1, type(argument))

    def _real_tensor(self, tensor: Tensor, code: Any) -> Attribute | Inside:
        entry = self._values.lookup(tensor)
        if entry is None or type(code) is not TensorId or entry.tensor_id != code:
            if type(code) is TensorId and (self._values.first_values[code].detail or "").startswith("inside"):
                raise CannotTrace(reasons.INSIDE_TRANSFORM())
            name = None if entry is None else self._name(tensor)
            raise CannotTrace(reasons.NEW_TENSOR() if name is None else reasons.REPLACED_TENSOR(name=name))
        self._real[entry.tensor_id] = tensor
        return self._inside(tensor) or self._attribute(tensor)

    def _inside(self, tensor: Tensor) -> Inside | None:
        """Return where a tensor that the module does not hold lies inside an object that the body got."""
        if self._objects and self._name(tensor) is None:
            for number, (mine, recorded) in enumerate(self._objects):
                steps = steps_to(mine, tensor) if mine is recorded else None  # not in a copy: it has an earlier state
                if steps is not None:
                    return Inside(OpaqueSlot(number, type(recorded)), steps)
        return None

    def _name(self, tensor: Tensor) -> str | None:
        return self._names.get(id(tensor)) or object_name(self._tape.module, tensor)

    def _attribute(self, tensor: Tensor) -> Attribute:
        name = self._name(tensor)
        self._template.for_class &= name is not None
        return Attribute(name, None if name is not None else tensor)


def _layout_of(value: Value) -> Layout:
    return value.shape, getattr(torch, value.dtype), value.requires_grad
