"""Inputs that bypass a call's arguments: a tensor in an attribute or a closure, a mode or forward set by a caller.

A graph passes arguments on and nothing else. If a call inside takes a tensor of the run that is not among its
arguments, the graph is right for this run only: on other inputs it would compute with stale tensors. If a caller set a
mode or another forward, the call and the calls inside it would do something else without that caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from types import FunctionType

from fxdebug.capture import reasons
from fxdebug.capture.hooks.compiled_modules import compiled_code_of
from fxdebug.capture.reasons import Words
from fxdebug.capture.replay.functions import is_same_function
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import tensor_ids_in
from fxdebug.capture.tensors.describe import type_name
from fxdebug.capture.tensors.tensor_ref import TensorId


def hidden_input(tape: CallTape, outermost: CallTape, handed_over: Set[TensorId] = frozenset()) -> Words | None:
    """Return the reason if a call inside takes a tensor of the run that is no argument of it; otherwise ``None``.

    ``outermost`` is the tape of the run's first call: its arguments, and all that is computed in it, are tensors of
    the run. ``handed_over`` are tensors that its graph puts into attributes of the modules it calls.
    """
    inner = list(_below(tape))
    if not inner:
        return None
    from_inside = {tensor_id for call in inner for tensor_id in _computed(call)}
    of_the_run = {tensor_id for call in (outermost, *_below(outermost)) for tensor_id in _computed(call)}
    of_the_run.update(outermost.input_layouts)
    for call in inner:
        foreign = (_taken(call) - from_inside - handed_over) & of_the_run
        if foreign:
            return reasons.HIDDEN_TENSOR(module=type_name(type(call.module)))
    return None


def changed_by_caller(tape: CallTape) -> Words | None:
    """Return the reason if a caller changed what this call, or one in it, does; otherwise ``None``."""
    if tape.callers_modes is not None:
        return tape.callers_modes
    for each in (tape, *_below(tape)):
        ran, has = (getattr(forward, "__func__", forward) for forward in (each.forward, each.module.forward))
        if each.forward is compiled_code_of(each.module):
            continue
        if type(ran) is not FunctionType or type(has) is not FunctionType or "__fxdebug__" in has.__dict__:
            continue
        if not is_same_function(ran, has):
            return reasons.RAN_OTHER_FORWARD(module=type_name(type(each.module)))
    return None


def _below(tape: CallTape) -> Iterator[CallTape]:
    for entry in tape.entries:
        if entry.tape is not None:
            yield entry.tape
            yield from _below(entry.tape)


def _computed(tape: CallTape) -> Iterator[TensorId]:
    """Yield the results of a body's operations that are neither its arguments nor its attributes."""
    earlier = set(tape.input_layouts)
    for entry in tape.entries:
        earlier.update(tensor_ids_in(entry.args), tensor_ids_in(entry.kwargs))
        if entry.tape is None:
            yield from (tensor_id for tensor_id in tensor_ids_in(entry.out) if tensor_id not in earlier)
        earlier.update(tensor_ids_in(entry.out))


def _taken(tape: CallTape) -> set[TensorId]:
    """Return the tensors that a body uses and that are neither its arguments nor results of its own operations."""
    known = set(tape.input_layouts) | set(tensor_ids_in(tape.args)) | set(tensor_ids_in(tape.kwargs))
    taken: set[TensorId] = set()
    for entry in tape.entries:
        taken.update(
            tensor_id
            for code in (entry.args, entry.kwargs)
            for tensor_id in tensor_ids_in(code)
            if tensor_id not in known
        )
        known.update(tensor_ids_in(entry.out))
    taken.update(tensor_id for tensor_id in tensor_ids_in(tape.out) if tensor_id not in known)
    return taken
