"""Check that the calls inside a body do the same when its graph makes them.

A body's Python may change what its calls find: it may patch a function of a library, or set a context variable. Such
a change is neither on the body's own tape nor in its graph, but it shows on the tapes of those calls. So the body and
its graph run on the same inputs, and the tapes of all calls in them are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from fxdebug.capture import reasons
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.replay.introspect import members_in
from fxdebug.capture.source.source_line import short_line
from fxdebug.capture.tape.argument_copies import is_lasting
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, made_in
from fxdebug.capture.tape.changed_arguments import result_in
from fxdebug.capture.tape.encoding import (
    ATOMS,
    OpaqueArg,
    Struct,
    have_same_keys,
    is_same,
    leaves_in,
    tensor_ids_in,
)
from fxdebug.capture.tape.made_modules import is_same_kind_of
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.type_names import type_name
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.module_members import buffers_of, parameters_of


def differing_call(
    native: tuple[CallTape, ValueTable], graph: tuple[CallTape, ValueTable], inputs: Sequence[TensorId | None]
) -> ReasonText | None:
    """Return the reason if a call does something else where the graph makes it; otherwise ``None``.

    ``inputs`` are the tensors on the native tape that are the graph's arguments.
    """
    (tape, values), (other, others) = native, graph
    origins = _origins(inputs, tape), _origins(list(tensor_ids_in(other.args)), other)
    weights = _weights(tape.module, values), _weights(other.module, others)
    comparison = _Comparison(weights, origins, (values, others))
    problem = comparison.of_calls(tape, other)
    if problem is None and not comparison.has_same_objects(result_in(tape.out), result_in(other.out)):
        problem = reasons.CHANGES_WHAT_LASTS(what="")  # an object that a call returned to it, and that it returns
    return problem


def _origins(inputs: Sequence[TensorId | None], tape: CallTape) -> dict[TensorId, tuple[str, int]]:
    """Return the place where each tensor of a body comes from: an argument, or an operation or call, by number.

    Operations inside of calls count, too: one call may leave a tensor that another takes.
    """
    origins: dict[TensorId, tuple[str, int]] = {}
    for number, tensor_id in enumerate(inputs):
        if tensor_id is not None:
            origins.setdefault(tensor_id, ("argument", number))
    for number, tensor_id in enumerate(made_in(tape)):
        origins.setdefault(tensor_id, ("result", number))
    return origins


def _weights(module: nn.Module, values: ValueTable) -> dict[TensorId, int]:
    """Return the ``id`` of each parameter and buffer, by its tensor id on the tape."""
    tensors = [*parameters_of(module), *buffers_of(module)]
    return {entry.tensor_id: id(tensor) for tensor in tensors if (entry := values.lookup(tensor)) is not None}


class _Comparison:
    """A comparison of tapes of two runs. A tensor has another id in each run; pairs are found on the way.

    Both of a pair must be the same weight or, if the two bodies themselves got or made them, come from the same place.
    """

    def __init__(
        self,
        weights: tuple[dict[TensorId, int], dict[TensorId, int]],
        origins: tuple[dict[TensorId, tuple[str, int]], dict[TensorId, tuple[str, int]]],
        values: tuple[ValueTable, ValueTable],
    ) -> None:
        self._values, self._other_values = values
        self._weights, self._other_weights = weights
        self._origins, self._other_origins = origins
        self._pairs: dict[TensorId, TensorId] = {}
        self._objects: dict[int, Any] = {}  # pairs of objects in one argument or result, by ``id`` of the first

    def of_calls(self, tape: CallTape, other: CallTape) -> ReasonText | None:
        calls, others = list(_calls(tape)), list(_calls(other))
        if len(calls) != len(others):
            return reasons.OTHER_CALLS()
        for call, other_call in zip(calls, others):
            problem = self._of(call, other_call)
            if problem is not None:
                return problem
        return None

    def _of(self, call: CallTape, other: CallTape) -> ReasonText | None:
        name = type_name(type(call.module))
        if call.module is not other.module and not is_same_kind_of(call.module, other.module):
            return reasons.OTHER_MODULE(module=name, other=type_name(type(other.module)))
        self._pairs = {}
        self._objects = {}
        if not self._same((call.args, call.kwargs), (other.args, other.kwargs)):
            return reasons.CALL_GIVEN_OTHER(module=name)
        for entry, other_entry in zip(call.entries, other.entries):
            if not self._is_same_step(entry, other_entry):
                return reasons.CALL_RUNS_OTHER(module=name, place=_at(entry))
        self._objects = {}
        if len(call.entries) != len(other.entries) or not self._same(call.out, other.out):
            return reasons.CALL_RUNS_OTHER(module=name, place="")
        return self.of_calls(call, other)

    def _is_same_step(self, entry: TapeEntry, other: TapeEntry) -> bool:
        if isinstance(entry.what, nn.Module):
            same = entry.what is other.what or is_same_kind_of(other.what, entry.what)
        else:
            same = type(entry.what) is type(other.what) and entry.what == other.what
        if not same or entry.context != other.context or entry.kernels != other.kernels:
            return False
        self._objects = {}
        return self._same((entry.args, entry.kwargs, entry.out), (other.args, other.kwargs, other.out))

    def _same(self, code: Any, other: Any) -> bool:
        kind = type(code)
        if kind is not type(other):
            return False
        if kind is TensorId:
            return self._is_same_tensor(code, other)
        if kind in ATOMS:
            return code is other or is_same(code, other)
        if kind is tuple or kind is list:
            return len(code) == len(other) and all(map(self._same, code, other))
        if kind is dict:
            return have_same_keys(code, other) and all(map(self._same, code.values(), other.values()))
        if kind is slice:
            return self._same((code.start, code.stop, code.step), (other.start, other.stop, other.step))
        if kind is Struct:
            same = code.type is other.type and code.keys == other.keys and len(code.items) == len(other.items)
            return same and all(map(self._same, code.items, other.items))
        if kind is OpaqueArg:  # the objects that each run made for itself
            return self._is_same_opaque(code, other)
        return bool(code == other)

    def has_same_objects(self, code: Any, other: Any) -> bool:
        """Do two results hold objects with the same contents, where these are compared by identity?"""
        self._objects = {}
        objects, others = (
            [leaf for leaf in leaves_in(each, False) if type(leaf) is OpaqueArg] for each in (code, other)
        )
        return len(objects) == len(others) and all(map(self._is_same_opaque, objects, others))

    def _is_same_opaque(self, code: OpaqueArg, other: OpaqueArg) -> bool:
        if type(code.object) is not type(other.object):
            return False
        if id(code.object) in self._objects:  # compared already, by what it held then
            return self._objects[id(code.object)] is other.object
        if code.contents is not None and other.contents is not None:
            self._objects[id(code.object)] = other.object
            return self._same(code.contents, other.contents)
        return self._is_same_object(code.object, other.object, set())

    def _is_same_object(self, thing: Any, other: Any, visited: set[int]) -> bool:
        """Have two objects the same contents? What lies very deep is not compared."""
        kind = type(thing)
        if kind is not type(other):
            return False
        if thing is other or id(thing) in visited or len(visited) > _MOST_COMPARED or is_lasting(thing):
            return True
        visited.add(id(thing))
        if kind in ATOMS:
            return is_same(thing, other)
        if issubclass(kind, Tensor):
            return self._is_same_content(thing, other)
        if kind is dict:
            same = have_same_keys(thing, other)
            return same and all(self._is_same_object(x, y, visited) for x, y in zip(thing.values(), other.values()))
        if kind is list or kind is tuple:
            return len(thing) == len(other) and all(self._is_same_object(x, y, visited) for x, y in zip(thing, other))
        members, other_members = members_in(thing) or {}, members_in(other) or {}
        return self._is_same_object(members, other_members, visited)

    def _is_same_content(self, tensor: Tensor, other: Tensor) -> bool:
        known, other_known = self._values.lookup(tensor), self._other_values.lookup(other)
        if known is None or other_known is None:
            return tensor.shape == other.shape and tensor.dtype == other.dtype
        origin, other_origin = self._origins.get(known.tensor_id), self._other_origins.get(other_known.tensor_id)
        return origin == other_origin and tensor.shape == other.shape and tensor.dtype == other.dtype

    def _is_same_tensor(self, tensor_id: TensorId, other: TensorId) -> bool:
        weight, other_weight = self._weights.get(tensor_id), self._other_weights.get(other)
        if weight is not None or other_weight is not None:
            return weight == other_weight
        if self._origins.get(tensor_id) != self._other_origins.get(other):
            return False
        return self._pairs.setdefault(tensor_id, other) == other


_MOST_COMPARED = 1_000  # objects in an object


def _calls(tape: CallTape) -> Iterator[CallTape]:
    return (entry.tape for entry in tape.entries if entry.tape is not None)


def _at(entry: TapeEntry) -> str:
    return "" if entry.line is None else f" at {short_line(entry.line)}"
