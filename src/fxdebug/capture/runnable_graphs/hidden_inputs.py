"""Inputs that bypass a call's arguments: a tensor in an attribute or a closure, a mode or forward set by a caller.

A graph passes arguments on and nothing else. If a call inside takes a tensor of the run that is not among its
arguments, the graph is right for this run only: on other inputs it would compute with stale tensors. If a caller set a
mode or another forward, the call and the calls inside it would do something else without that caller.
"""

from __future__ import annotations

from collections.abc import Set
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from fxdebug.capture import reasons
from fxdebug.capture.hooks.compiled_modules import compiled_code_of
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.replay.functions import is_same_function
from fxdebug.capture.tape.call_tape import CallTape, calls_in, computed_by, taken_by
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.type_names import type_name
from fxdebug.capture.tensors.value_table import ValueTable


def hidden_input(
    tape: CallTape, outermost: CallTape, values: ValueTable, handed_over: Set[TensorId] = frozenset()
) -> ReasonText | None:
    """Return the reason if a call inside takes a tensor of the run that is no argument of it; otherwise ``None``.

    ``outermost`` is the tape of the run's first call: its arguments, and all that is computed in it, are tensors of
    the run. ``handed_over`` are tensors that its graph puts into attributes of the modules it calls. A tensor that an
    earlier call of the module has made, and that the module holds since, is part of the module: a mask or a table.
    """
    inner = list(calls_in(tape))
    if not inner:
        return None
    from_inside = {tensor_id for call in inner for tensor_id in computed_by(call)}
    of_the_run: dict[TensorId, nn.Module | None] = {
        tensor_id: call.module for call in (outermost, *calls_in(outermost)) for tensor_id in computed_by(call)
    }
    of_the_run.update(dict.fromkeys(outermost.input_layouts))
    for call in inner:
        foreign = [each for each in taken_by(call) - from_inside - handed_over if each in of_the_run]
        if foreign and not all(of_the_run[each] is call.module for each in foreign):
            return reasons.HIDDEN_TENSOR(module=type_name(type(call.module)))
        if foreign and not _held_by(call.module, values).issuperset(foreign):
            return reasons.HIDDEN_TENSOR(module=type_name(type(call.module)))
    return None


def changed_by_caller(tape: CallTape) -> ReasonText | None:
    """Return the reason if a caller changed what this call, or one in it, does; otherwise ``None``."""
    if tape.callers_modes is not None:
        return tape.callers_modes
    for each in (tape, *calls_in(tape)):
        ran, has = (getattr(forward, "__func__", forward) for forward in (each.forward, each.module.forward))
        if each.forward is compiled_code_of(each.module):
            continue
        if type(ran) is not FunctionType or type(has) is not FunctionType or "__fxdebug__" in has.__dict__:
            continue
        if not is_same_function(ran, has):
            return reasons.RAN_OTHER_FORWARD(module=type_name(type(each.module)))
    return None


def _held_by(module: nn.Module, values: ValueTable) -> set[TensorId]:
    """Return the tensors that a module holds: its buffers, and those in its attributes and their lists and dicts."""
    held: list[Any] = [*module._buffers.values(), *module._parameters.values()]
    for attribute in module.__dict__.values():
        kind = type(attribute)
        items = attribute.values() if kind is dict else attribute if kind in (list, tuple) else (attribute,)
        held.extend(items)
    entries = (values.lookup(thing) for thing in held if isinstance(thing, Tensor))
    return {entry.tensor_id for entry in entries if entry is not None}
