"""The fallback: a tape as a pattern, with the constants of this one run. It can be shown, never run elsewhere."""

from __future__ import annotations

from typing import Any

from torch import nn

from fxdebug.capture.graphs.template import (
    Attribute,
    GraphTemplate,
    Node,
    OpaqueSlot,
    Slot,
    argument_names,
    attribute_names,
    relative_paths,
)
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import OpaqueArg, rebuilt, uids_in
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable


def pattern_of_tape(body: CallTape, values: ValueTable) -> tuple[GraphTemplate, list[TensorId | None]]:
    """The pattern of what ran, and the tensor in each of its slots."""
    return _Reader(body, values).pattern()


class _Reader:
    def __init__(self, body: CallTape, values: ValueTable) -> None:
        self._body = body
        self._values = values
        self._slots: dict[TensorId, int] = {}
        self._held: list[Any] = []
        names = attribute_names(body.module)
        self._names = {entry.tensor_id: names[id(tensor)] for tensor, entry in _alive(body.module, values)}

    def pattern(self) -> tuple[GraphTemplate, list[TensorId | None]]:
        body = self._body
        paths = relative_paths(body.module)
        made = GraphTemplate(args=(), kwargs={}, context=body.context, reusable=False)
        made.args, made.kwargs = self._bound(body.args), self._bound(body.kwargs)
        made.inputs = len(self._slots)
        made.names = argument_names(body.forward, body, made.inputs)
        for entry in body.entries:
            module = isinstance(entry.what, nn.Module)
            args, kwargs = self._used(entry.args), self._used(entry.kwargs)
            made.nodes.append(
                Node(
                    None if module else entry.what,
                    paths.get(id(entry.what), entry.what) if module else None,
                    args,
                    kwargs,
                    self._bound(entry.out),
                    entry.context,
                    entry.line,
                )
            )
        made.out = self._used(body.out)
        made.slots, made.held = len(self._slots), len(self._held)
        return made, list(self._slots)

    def _bound(self, code: Any) -> Any:
        """Every tensor in the code gets a slot."""
        for uid in uids_in(code):
            if uid not in self._slots:
                self._slots[uid] = len(self._slots)
        return self._used(code)

    def _used(self, code: Any) -> Any:
        return rebuilt(code, self._leaf)

    def _leaf(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            if code in self._slots:
                return Slot(self._slots[code])
            return Attribute(self._names.get(code), self._values.first_values[code])
        if kind is OpaqueArg:
            for number, thing in enumerate(self._held):
                if thing is code.thing:
                    return OpaqueSlot(number, type(thing))
            self._held.append(code.thing)
            return OpaqueSlot(len(self._held) - 1, type(code.thing))
        return code


def _alive(module: nn.Module, values: ValueTable) -> list[tuple[Any, Any]]:
    """The module's parameters and buffers that the run met, with their entries."""
    tensors = [*module.parameters(), *module.buffers()]
    return [(tensor, entry) for tensor in tensors if (entry := values.lookup(tensor)) is not None]
