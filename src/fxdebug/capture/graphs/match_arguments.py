"""Match the arguments of a traced body with those on its tape, and make templates of them.

While a body is traced, an argument has three forms: the *code* on the tape, the *argument* that the body's Python sees
in its place (for a tensor, a placeholder), and the *template* that is made of both.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Set
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture import reasons
from fxdebug.capture.graphs.names import attribute_names, object_name, place_below, short_repr, steps_to
from fxdebug.capture.graphs.placeholder_tensor import SPARSE, PlaceholderTensor
from fxdebug.capture.graphs.symbolic_size import GIVEN, Shape, Size, plain
from fxdebug.capture.graphs.template import AssignedByCall, Attribute, GraphTemplate, OpaqueSlot, Slot, TensorInObject
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.tape.argument_copies import ArgumentCopies
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, made_in_calls
from fxdebug.capture.tape.changed_arguments import (
    ResultAndChanges,
    change_arguments,
    changes_in,
    objects_in,
    result_in,
    with_changes,
)
from fxdebug.capture.tape.encoding import (
    ATOMS,
    OpaqueArg,
    Struct,
    have_same_keys,
    is_same,
    leaves_in,
    map_leaves,
    members_of,
    state_of,
    tensor_ids_in,
)
from fxdebug.capture.tape.in_place import HandedOn, handed_on
from fxdebug.capture.tensors.tensor_ref import TensorId, WeightRef
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.data.values import UNKNOWN, Value

_NOTHING: dict[int, bool] = {}
Layout = tuple[tuple[int, ...], torch.dtype, bool]  # shape, dtype, requires_grad


class ArgumentMatcher:
    """The codes, placeholders and slots of one trace. Slots are numbered in ``template`` as tensors appear.

    ``layouts`` has shape, dtype and requires_grad of each tensor as they are at this point of the trace, and
    ``placeholders`` weak references to the placeholders that were made. Objects whose contents were noted are made
    anew, with placeholders for the tensors in them; with ``objects_as_they_are``, the body gets the objects themselves.
    What an operation returns that it was given has a placeholder of its own: another name of the tensor. With
    ``one_name``, the body gets the object that it passed.
    """

    def __init__(
        self,
        tape: CallTape,
        values: ValueTable,
        template: GraphTemplate,
        objects_as_they_are: bool = False,
        one_name: bool = False,
    ) -> None:
        self.layouts: dict[TensorId, Layout] = dict(tape.input_layouts)
        self.placeholders: list[weakref.ref[PlaceholderTensor]] = []
        self._tape = tape
        self._values = values
        self._template = template
        self._placeholder_of: dict[TensorId, PlaceholderTensor] = {}  # the latest, where a tensor has several names
        self._all_of: dict[TensorId, list[PlaceholderTensor]] = {}  # one for each name of a tensor, the first one first
        self._handed_on: HandedOn = {} if one_name else handed_on(tape)
        self._real: dict[TensorId, Tensor] = {}  # tensors that the body's Python reached without a placeholder
        self._without_data: dict[TensorId, Tensor] = {}  # passed to the body in the place of their placeholders
        self._objects: list[tuple[Any, Any]] = []  # (object in the trace, object on the tape), by number
        self._made: dict[int, _Made] = {}  # by number: objects that are known by what they hold
        self._objects_as_they_are = objects_as_they_are
        self._names = attribute_names(tape.module)
        self._arguments: tuple[Any, Any] = tape.args, tape.kwargs
        self._made_inside: frozenset[TensorId] | None = None

    def forget(self) -> None:
        """Let go of all placeholders."""
        self._placeholder_of.clear()
        self._all_of.clear()
        self._real.clear()
        self._without_data.clear()
        self._objects.clear()
        self._made.clear()

    def known(self) -> tuple[frozenset[TensorId], int]:
        """Return the tensors and objects that the trace has met so far, for :meth:`forget_but`."""
        return frozenset(self._placeholder_of), len(self._objects)

    def forget_but(self, known: tuple[frozenset[TensorId], int]) -> None:
        """Forget tensors and objects that it has met since: the graph does not have them."""
        tensor_ids, objects = known
        for tensor_id in self._placeholder_of.keys() - tensor_ids:
            del self._placeholder_of[tensor_id], self._all_of[tensor_id]
        del self._objects[objects:]
        for number in [number for number in self._made if number >= objects]:
            del self._made[number]

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
            made = {id(leaf.object) for leaf in leaves_in((tape.args, tape.kwargs)) if self._contents_of(leaf)}
            for copy, earlier in fresh.pairs.values():
                original = originals.get(id(earlier), earlier)
                if copy is not original and type(copy) not in (tuple, list, dict) and id(original) not in made:
                    self._objects.append((copy, original))
        if self._template.given_sizes:
            self._arguments = self._with_sizes()
        return self.decoded(self._arguments[0]), self.decoded(self._arguments[1])

    def templates_of_arguments(self) -> tuple[Any, Any]:
        """Return the templates of the call's arguments, which were decoded before."""
        return self.template_of(self._arguments[0]), self.template_of(self._arguments[1])

    def _with_sizes(self) -> Any:
        """Return the codes of the arguments with a size for each integer that the caller computed from sizes."""
        positions, numbers = itertools.count(), itertools.count()

        def size_or_same(code: Any) -> Any:
            return Size(code, (GIVEN, next(numbers))) if next(positions) in self._template.given_sizes else code

        return map_leaves((self._tape.args, self._tape.kwargs), size_or_same)

    def decoded(self, code: Any) -> Any:
        """Return the argument that is passed to the body's Python for a code."""
        return map_leaves(code, self._decoded_leaf, _built)

    def result_of(self, entry: TapeEntry, code: Any) -> Any:
        """Return the result that the body's Python gets for an operation or a call; its ``code`` may have names."""
        for tensor_id in tensor_ids_in(entry.out):
            if tensor_id not in self.layouts:
                self.layouts[tensor_id] = _layout_of(self._values.first_values[tensor_id])
        if type(entry.out) is TensorId and self._loses_data(entry):
            return self._moved_to_meta(entry.out)
        result, objects = self.decoded(code), objects_in(entry.out)
        if type(result) is ResultAndChanges:
            result.objects = [] if self._objects_as_they_are else self._changes_of(objects)
        return result

    # Names of a tensor that operations return ----------------------------------------------------

    def with_names(self, entry: TapeEntry, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the code of a result with placeholders for the tensors in it that were there before.

        One that was written to stays the object that was passed, as those in changed arguments do. Any other gets a new
        name: what the body gives to a later operation then tells whether that uses the argument or the result.
        """
        handed, numbers = self._handed_on.get(index, _NOTHING), itertools.count()

        def passed(leaf: Any) -> Any:
            return self._passed(leaf, (args, kwargs)) if type(leaf) is TensorId else leaf

        def name(leaf: Any) -> Any:
            is_written = handed.get(next(numbers)) if type(leaf) is TensorId else None
            if is_written and leaf in self._all_of:
                self._template.written_names.add(self._all_of[leaf][0].slot)
            return leaf if is_written is None else passed(leaf) if is_written else self._named_anew(leaf)

        returned = result_in(entry.out)
        named = map_leaves(returned, name) if handed else returned
        if returned is entry.out:
            return named
        changed = {place: map_leaves(content, passed) for place, content in changes_in(entry.out).items()}
        return entry.out.with_items([named, changed, *entry.out.items[2:]])

    def _passed(self, tensor_id: TensorId, arguments: Any) -> TensorId | PlaceholderTensor:
        """Return the placeholder of a tensor that is among the arguments of an operation, if there is one."""
        return next((each for each in _placeholders_in(arguments) if each.tensor_id == tensor_id), tensor_id)

    def _named_anew(self, tensor_id: TensorId) -> TensorId | PlaceholderTensor:
        try:
            placeholder = self._new_placeholder(tensor_id)
        except CannotTrace:  # a parameter of a kind that has no placeholder
            return tensor_id
        self._template.names[placeholder.slot] = self._all_of[tensor_id][0].slot
        if tensor_id in self._placeholder_of:  # no tensor of the module, which stays what its own name stands for
            self._placeholder_of[tensor_id] = placeholder
        return placeholder

    def _loses_data(self, entry: TapeEntry) -> bool:
        """Did an operation move a tensor to the device ``meta``? The body may make a ``Parameter`` of such a one."""
        is_new = entry.out not in self._placeholder_of and entry.out not in self._real
        if not is_new or isinstance(entry.what, torch.nn.Module) or self._device_of(entry.out) != "meta":
            return False
        return any(self._device_of(each) != "meta" for each in tensor_ids_in((entry.args, entry.kwargs)))

    def _device_of(self, tensor_id: TensorId) -> str:
        return self._values.first_values[tensor_id].device

    def _moved_to_meta(self, tensor_id: TensorId) -> Tensor:
        """Return a tensor without data for the body, which stands for a placeholder."""
        first, (shape, dtype, gradient) = self._values.first_values[tensor_id], self.layouts[tensor_id]
        if first.stride is None or UNKNOWN in shape:
            raise CannotTrace(reasons.NO_SYMBOL_FOR_SIZE())
        self.decoded(tensor_id)
        with internals.DisableTorchFunction():
            made = torch.empty_strided(shape, first.stride, dtype=dtype, device="meta", requires_grad=gradient)
        self._without_data[tensor_id] = made
        return made

    def _changes_of(self, objects: list[OpaqueArg]) -> list[tuple[Any, dict[str, Any]]]:
        """Return the objects that a call changes, as the body has them, with the attributes that it gives them."""
        changes = []
        for code in objects:
            mine = next((mine for mine, recorded in self._objects if recorded is code.object), None)
            if mine is None or mine is code.object or code.contents is None:
                raise CannotTrace(reasons.OTHER_OBJECT(kind=type(code.object).__name__))
            members = [self.decoded(item) for item in code.contents.items]
            changes.append((mine, dict(zip(code.contents.keys or (), members))))
        return changes

    def changed_by_call(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give arguments and objects what they hold after a call; return its result. A graph's call does so, too."""
        if type(result) is not ResultAndChanges:
            return result
        unchanged = [made for made in self._made.values() if not made.is_changed()] if result.objects else []
        returned = change_arguments(result, args, kwargs)
        for made in unchanged:
            made.settle()
        return returned

    def matched_output(self, output: Any, args: tuple[Any, ...], kwargs: dict[str, Any], code: Any) -> Any:
        """Return the template of what the body returns, and of what it leaves in its arguments."""
        left = [self._matched_change(object) for object in reversed(objects_in(code))]  # what others hold comes first
        template = self.matched(with_changes(code, output, args, kwargs), _without_objects(code))
        if type(template) is Struct and template.type is ResultAndChanges:
            template.items[2] = left[::-1]
        return template

    def _matched_change(self, code: OpaqueArg) -> OpaqueSlot:
        """Return the template of an object that was changed with what it holds now."""
        kind = type(code.object)
        number = next((n for n, (_, recorded) in enumerate(self._objects) if recorded is code.object), None)
        if number is None:
            raise CannotTrace(reasons.OTHER_OBJECT(kind=kind.__name__))
        made = self._made.get(number)
        if made is None or code.contents is None:
            return OpaqueSlot(number, kind)
        members = state_of(self._objects[number][0])
        if members is None or tuple(members) != code.contents.keys:
            raise CannotTrace(reasons.OTHER_OBJECT(kind=kind.__name__))
        is_left_by_calls = not made.is_changed()
        items = [self.matched(x, y) for x, y in zip(members.values(), code.contents.items)]
        made.settle()
        if is_left_by_calls:
            self._template.changed_by_calls.add(number)
        return OpaqueSlot(number, kind, code.contents.with_items(items))

    def has_placeholder(self, tensor_id: TensorId) -> bool:
        """Does this tensor have a placeholder?"""
        return tensor_id in self._placeholder_of

    def set_first_layout(self, tensor_id: TensorId) -> None:
        """Record that a tensor has the layout again that it had first."""
        self.set_layout(tensor_id, _layout_of(self._values.first_values[tensor_id]))

    def set_layout(self, tensor_id: TensorId, layout: Layout) -> None:
        """Record the layout of a tensor after an in-place operation."""
        self.layouts[tensor_id] = layout
        for placeholder in self._all_of.get(tensor_id, ()):
            placeholder.gradient = layout[2]

    def _decoded_leaf(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            return self._tensor(code)
        if kind is OpaqueArg:
            for mine, recorded in self._objects:
                if recorded is code.object:
                    return mine
            contents = self._contents_of(code)
            if contents is None:
                self._objects.append((code.object, code.object))  # made by a child: passed on as it is
                return code.object
            made = contents.build([self.decoded(item) for item in contents.items])
            self._objects.append((made, code.object))
            self._made[len(self._objects) - 1] = _Made(made)
            return made
        return code

    def _contents_of(self, code: Any) -> Struct | None:
        """Return the codes of what an object holds, where the trace gets one that is made anew from them."""
        return code.contents if type(code) is OpaqueArg and not self._objects_as_they_are else None

    def _tensor(self, tensor_id: TensorId) -> Tensor:
        known = self._placeholder_of.get(tensor_id)
        if known is not None:
            return known
        if tensor_id in self._real:
            return self._real[tensor_id]
        placeholder = self._placeholder_of[tensor_id] = self._new_placeholder(tensor_id)
        return placeholder

    def _new_placeholder(self, tensor_id: TensorId) -> PlaceholderTensor:
        first = self._values.first_values[tensor_id]
        shape, dtype, gradient = self.layouts.setdefault(tensor_id, _layout_of(first))
        if (first.detail or "").startswith("inside"):
            raise CannotTrace(reasons.INSIDE_TRANSFORM())
        layout = None if first.layout == "strided" else getattr(torch, first.layout)
        if (first.detail or "").startswith(("nested", "quantised")) or (layout and layout not in SPARSE):
            kind = first.layout if first.detail is None else first.detail.split()[0].strip(":,")
            raise CannotTrace(reasons.NO_SYMBOL_FOR_KIND(kind=kind))
        if UNKNOWN in shape:
            raise CannotTrace(reasons.NO_SYMBOL_FOR_SIZE())
        if first.sharding is not None:
            shape = first.sharding.shape
            self.layouts[tensor_id] = (shape, dtype, gradient)
        stride = first.stride if shape == first.shape and layout is None else None
        device = torch.device(first.device)
        placeholder = PlaceholderTensor(tensor_id, self._template.slots, shape, stride, dtype, device, gradient)
        placeholder.sparse = layout
        self._template.slots += 1
        self._all_of.setdefault(tensor_id, []).append(placeholder)
        self.placeholders.append(weakref.ref(placeholder))
        return placeholder

    # From codes to templates ---------------------------------------------------------------------

    def template_of(self, code: Any) -> Any:
        """Return the template of a code that has been decoded."""
        return map_leaves(code, self._template_of_leaf)

    def template_of_result(self, code: Any) -> Any:
        """Return the template of a result that has been decoded, with what a call left in the objects it changed."""
        template = self.template_of(_without_objects(code))
        for object in objects_in(code):
            number = next((n for n, (_, recorded) in enumerate(self._objects) if recorded is object.object), None)
            is_known = number in self._made
            contents = self.template_of(object.contents) if is_known and object.contents is not None else None
            slot = (
                self._template_of_leaf(object) if number is None else OpaqueSlot(number, type(object.object), contents)
            )
            template.items[2].append(slot)
        return template

    def _template_of_leaf(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            known = self._placeholder_of.get(code)
            if known is None:
                return self._in_object(self._real[code]) or self._attribute(self._real[code])
            return Slot(known.slot)
        if kind is PlaceholderTensor:  # a name: see ``with_names``
            return Slot(code.slot)
        if kind is OpaqueArg:
            for number, (_, recorded) in enumerate(self._objects):
                if recorded is code.object:
                    return self._first_slot_of(number, code)
            self._objects.append((code.object, code.object))
            return OpaqueSlot(len(self._objects) - 1, type(code.object))
        return code

    def _first_slot_of(self, number: int, code: OpaqueArg) -> OpaqueSlot:
        """Return the slot of an object that has been decoded; where it comes first, with what it holds."""
        made = self._made.get(number)
        if made is None or made.is_in_template or code.contents is None:
            return OpaqueSlot(number, type(code.object))
        made.is_in_template = True
        return OpaqueSlot(number, type(code.object), self.template_of(code.contents))

    # From what the body's Python passes to templates ---------------------------------------------

    def matched(self, argument: Any, code: Any) -> Any:
        """Return the template of an argument, which must match ``code`` on the tape.

        Raises :class:`CannotTrace` with the difference where it does not.
        """
        kind = type(argument)
        if kind is PlaceholderTensor:
            known = self._all_of.get(code, ()) if type(code) is TensorId else ()
            if argument.tensor_id != code or not any(each is argument for each in known):
                raise CannotTrace(reasons.OTHER_TENSOR())
            return Slot(argument.slot)
        if kind is Size:
            if type(code) is not int or plain(argument) != code:
                raise CannotTrace(reasons.OTHER_SIZE(now=plain(argument), then=repr(code)))
            return argument
        if kind in ATOMS:
            if type(code) is kind and (code is argument or is_same(code, argument)):
                return argument
            raise CannotTrace(reasons.OTHER_CONSTANT(now=short_repr(argument), then=short_repr(code)))
        if issubclass(kind, Tensor):
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
            return {key: self.matched(x, y) for (key, x), y in zip(argument.items(), code.values())}
        if kind is slice:
            if type(code) is not slice:
                raise CannotTrace(reasons.OTHER_KIND(kind="slice", then=short_repr(code)))
            return slice(*(self.matched(getattr(argument, n), getattr(code, n)) for n in ("start", "stop", "step")))
        if type(code) is Struct and code.type is kind:
            return self._matched_struct(argument, code)
        if type(code) is OpaqueArg:
            return self._matched_object(argument, code)
        if issubclass(kind, (int, float, complex, str, Enum)) and type(code) is kind and code == argument:
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
        number = next((n for n, (mine, _) in reversed(list(enumerate(self._objects))) if mine is argument), None)
        made = None if number is None else self._made.get(number)
        if number is not None:
            if self._objects[number][1] is not code.object:
                raise CannotTrace(reasons.OTHER_OBJECT(kind=type(argument).__name__))
            if made is None or not made.is_changed():
                return OpaqueSlot(number, type(argument))
        elif argument is not code.object and (
            type(argument) is not type(code.object) or any(recorded is code.object for _, recorded in self._objects)
        ):
            raise CannotTrace(reasons.OTHER_OBJECT(kind=type(argument).__name__))
        contents = None if argument is code.object else self._matched_contents(argument, code)
        if made is not None and contents is None:  # the body has changed it since, and a graph does not
            raise CannotTrace(reasons.OTHER_OBJECT(kind=type(argument).__name__))
        self._objects.append((argument, code.object))
        number = len(self._objects) - 1
        if contents is not None:
            self._made[number] = _Made(argument, is_in_template=True)
        return OpaqueSlot(number, type(argument), contents)

    def _matched_contents(self, argument: Any, code: OpaqueArg) -> Struct | None:
        """Return the template of what an object holds that the body has made; ``None`` if it holds something else."""
        contents, members = self._contents_of(code), state_of(argument)
        if contents is None or members is None or contents.keys != tuple(members):
            return None
        known = len(self._objects)
        try:
            return contents.with_items([self.matched(x, y) for x, y in zip(members.values(), contents.items)])
        except CannotTrace:
            del self._objects[known:]
            for number in [number for number in self._made if number >= known]:
                del self._made[number]
            return None

    def template_of_tensor(self, tensor: Tensor) -> Slot | Attribute | TensorInObject | AssignedByCall | None:
        """Return the template of a tensor that the body hands over; ``None`` for one that the run does not know."""
        if type(tensor) is PlaceholderTensor:
            return Slot(tensor.slot)
        moved = self._slot_of_moved(tensor)
        if moved is not None:
            return moved
        entry = self._values.lookup(tensor)
        return None if entry is None else self._real_tensor(tensor, entry.tensor_id)

    def _slot_of_moved(self, tensor: Tensor) -> Slot | None:
        found = next((tensor_id for tensor_id, made in self._without_data.items() if made is tensor), None)
        return None if found is None else Slot(self._placeholder_of[found].slot)

    def _real_tensor(self, tensor: Tensor, code: Any) -> Slot | Attribute | TensorInObject | AssignedByCall:
        moved = self._slot_of_moved(tensor)
        if moved is not None:
            return moved
        entry = self._values.lookup(tensor)
        if type(code) is TensorId and self._is_made_anew(tensor, code):
            self._real[code] = tensor
            return self._in_object(tensor) or self._attribute(tensor)
        if entry is None or type(code) is not TensorId or entry.tensor_id != code:
            if type(code) is TensorId and (self._values.first_values[code].detail or "").startswith("inside"):
                raise CannotTrace(reasons.INSIDE_TRANSFORM())
            name = None if entry is None else self._name(tensor)
            raise CannotTrace(reasons.NEW_TENSOR() if name is None else reasons.REPLACED_TENSOR(name=name))
        if not isinstance(entry, WeightRef) and entry.tensor_id in self._made_in_calls():
            return self._assigned(tensor)
        self._real[entry.tensor_id] = tensor
        return self._in_object(tensor) or self._attribute(tensor)

    def _assigned(self, tensor: Tensor) -> AssignedByCall | TensorInObject:
        """Return the attribute to which a call in the body assigned a tensor that it made."""
        place = place_below(self._tape.module, tensor)
        if place is not None:
            return AssignedByCall(*place)
        inside = self._in_object(tensor)
        if inside is None:  # a graph would have the tensor of this run
            raise CannotTrace(reasons.NEW_TENSOR())
        return inside

    def _made_in_calls(self) -> Set[TensorId]:
        """Return the tensors that the operations inside of the body's calls have made."""
        if self._made_inside is None:
            self._made_inside = frozenset(made_in_calls(self._tape))
        return self._made_inside

    def _is_made_anew(self, tensor: Tensor, tensor_id: TensorId) -> bool:
        """Is it an object that each run makes for a tensor from outside: no operation of the body made either?"""
        if tensor_id in self._placeholder_of or self._real.get(tensor_id, tensor) is not tensor:
            return False
        return self._values.lies_where(tensor, tensor_id)

    def _in_object(self, tensor: Tensor) -> TensorInObject | None:
        """Return where a tensor that the module does not hold lies inside an object that the body got."""
        if self._objects and self._name(tensor) is None:
            for number, (mine, recorded) in enumerate(self._objects):
                steps = steps_to(mine, tensor) if mine is recorded else None  # not in a copy: it has an earlier state
                if steps is not None:
                    return TensorInObject(OpaqueSlot(number, type(recorded)), steps)
        return None

    def _name(self, tensor: Tensor) -> str | None:
        return self._names.get(id(tensor)) or object_name(self._tape.module, tensor)

    def _attribute(self, tensor: Tensor) -> Attribute:
        name = self._name(tensor)
        self._template.for_class &= name is not None
        return Attribute(name, None if name is not None else tensor)


class _Made:
    """An object in the trace that is known by what it holds, with what it held when it came first.

    ``is_in_template``: the template has its contents already.
    """

    def __init__(self, made: Any, is_in_template: bool = False) -> None:
        self._made = made
        self._then = ArgumentCopies(made)
        self.is_in_template = is_in_template

    def settle(self) -> None:
        """Note what it holds now: a graph has that."""
        self._then = ArgumentCopies(self._made)

    def is_changed(self) -> bool:
        """Has the body given it other contents since? A graph does not."""
        return not self._then.are_as_before()


def _placeholders_in(argument: Any) -> Iterator[PlaceholderTensor]:
    kind = type(argument)
    if kind is PlaceholderTensor:
        yield argument
    elif issubclass(kind, (tuple, list, dict)):
        for item in argument.values() if issubclass(kind, dict) else argument:
            yield from _placeholders_in(item)


def _built(struct: Struct, items: list[Any]) -> Any:
    """Return the object of a Struct. A ``torch.Size`` would forget where its items come from."""
    is_symbolic = struct.type is torch.Size and any(type(item) is Size for item in items)
    return Shape(items) if is_symbolic else struct.build(items)


def _without_objects(code: Any) -> Any:
    has_objects = type(code) is Struct and code.type is ResultAndChanges
    return code.with_items([*code.items[:2], []]) if has_objects else code


def _layout_of(value: Value) -> Layout:
    return value.shape, getattr(torch, value.dtype), value.requires_grad
