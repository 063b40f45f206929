"""The fallback: a tape as a template, with the constants of this one run. It can be shown, never run elsewhere."""

from __future__ import annotations

from typing import Any

from torch import nn

from fxdebug.capture.graphs.names import argument_names, attribute_names, relative_paths
from fxdebug.capture.graphs.template import Attribute, GraphTemplate, OpaqueSlot, Slot
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.encoding import OpaqueArg, map_leaves, tensor_ids_in
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.module_members import buffers_of, parameters_of


def template_of_tape(
    tape: CallTape, values: ValueTable, count: int | None = None
) -> tuple[GraphTemplate, list[TensorId | None]]:
    """Return a tape in template form, and the tensor in each slot of the template; ``count``: of so many operations."""
    return _Reader(tape, values).template(count)


class _Reader:
    def __init__(self, tape: CallTape, values: ValueTable) -> None:
        self._tape = tape
        self._values = values
        self._slots: dict[TensorId, int] = {}
        self._objects: list[Any] = []  # objects compared by identity, by number
        names = attribute_names(tape.module)
        self._names = {entry.tensor_id: names[id(tensor)] for tensor, entry in _weights_on_tape(tape.module, values)}

    def template(self, count: int | None = None) -> tuple[GraphTemplate, list[TensorId | None]]:
        tape = self._tape
        paths = relative_paths(tape.module)
        template = GraphTemplate(args=(), kwargs={}, context=tape.context, for_class=False)
        template.args, template.kwargs = self._with_new_slots(tape.args), self._with_new_slots(tape.kwargs)
        template.inputs = len(self._slots)
        template.input_names = argument_names(tape.forward, tape, template.inputs)
        for entry in tape.entries[:count]:
            what = paths.get(id(entry.what), entry.what) if isinstance(entry.what, nn.Module) else entry.what
            args, kwargs = self._with_slots(entry.args), self._with_slots(entry.kwargs)
            out = self._with_new_slots(entry.out)
            template.entries.append(TapeEntry(what, args, kwargs, out, entry.context, entry.line))
        template.out = self._with_slots(tape.out)
        template.slots, template.opaque_slots = len(self._slots), len(self._objects)
        return template, list(self._slots)

    def _with_new_slots(self, code: Any) -> Any:
        """Return the template of a code in which every tensor gets a slot."""
        for tensor_id in tensor_ids_in(code):
            if tensor_id not in self._slots:
                self._slots[tensor_id] = len(self._slots)
        return self._with_slots(code)

    def _with_slots(self, code: Any) -> Any:
        return map_leaves(code, self._leaf)

    def _leaf(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            if code in self._slots:
                return Slot(self._slots[code])
            return Attribute(self._names.get(code), self._values.first_values[code])
        if kind is OpaqueArg:
            for number, known in enumerate(self._objects):
                if known is code.object:
                    return OpaqueSlot(number, type(known))
            self._objects.append(code.object)
            number = len(self._objects) - 1
            contents = None if code.contents is None else self._with_slots(code.contents)
            return OpaqueSlot(number, type(code.object), contents)
        return code


def _weights_on_tape(module: nn.Module, values: ValueTable) -> list[tuple[Any, Any]]:
    """Return the module's parameters and buffers that the run used, with their entries."""
    tensors = [*parameters_of(module), *buffers_of(module)]
    return [(tensor, entry) for tensor in tensors if (entry := values.lookup(tensor)) is not None]
