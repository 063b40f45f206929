"""Collectives and receives on the tape: operations that write what other ranks send into tensors of this one.

``dist.all_reduce(y)`` moves no version of ``y``, and no mode of torch functions sees it. So the operators of ``c10d``
get a kernel of ours in front of their own, which every collective of the process passes, from Python and C++. What is
written is there only once the work has been waited for: the new value is taken when the tensor is next looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture import reasons
from fxdebug.capture.hooks.patch import Patch, SharedPatch
from fxdebug.capture.source.source_line import user_line, with_line
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, TensorRefs
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.capture.tensors.tensor_ref import TensorId, TensorRef
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.distributed import is_in_job
from fxdebug.capture.torch_state.grad_mode import context_now
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import Value

# The operators that write to tensors, by the names of their functions in ``torch.distributed``.
_WRITING = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather_coalesced",
    "_allgather_base_": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "recv_": "recv",
    "recv_any_source_": "recv",
}
_KEY = "BackendSelect"  # the first dispatch key of a collective behind autograd's
_SUMS = ("allreduce_", "allreduce_coalesced_", "reduce_")  # what they write to is an operand as well


class _Kernels(Patch):
    """Kernels in front of the operators of ``c10d``, in the dispatcher."""

    def __init__(self) -> None:
        super().__init__("torch.ops.c10d")
        self._library: Any = None

    def read(self) -> Any:
        """Return the library with our kernels, if it is there."""
        return self._library

    def write(self, content: Any) -> None:
        """Keep our kernels, or let go of them: the dispatcher then forgets them."""
        self._library = content

    def replacement(self, original: Any) -> Any:
        """Return our kernels, which are in the dispatcher from now on."""
        library = torch.library.Library("c10d", "IMPL")
        for name in _WRITING:
            packet = getattr(torch.ops.c10d, name, None)
            for overload in () if packet is None else packet.overloads():
                operator = getattr(packet, overload)
                library.impl(operator, _kernel(operator, name), _KEY, with_keyset=True)
        return library


class _Collectives(SharedPatch):
    """The kernels, while tapes are on that want to know of collectives: these are its users."""

    users: tuple[Tape, ...]

    def places(self) -> tuple[Patch, ...]:
        """Return the kernels, in a distributed job."""
        return () if not is_in_job() or internals.keyset_after(_KEY) is None else (_Kernels(),)


_collectives = _Collectives()
begin, end = _collectives.begin, _collectives.end


def _kernel(operator: Any, name: str) -> Callable[..., Any]:
    names = [argument.name for argument in operator._schema.arguments]
    after = internals.keyset_after(_KEY)

    def kernel(keyset: Any, *args: Any) -> Any:
        noted = [_noted(tape, name, dict(zip(names, args))) for tape in _collectives.users if _is_on(tape)]
        result = operator.redispatch(keyset & after, *args)
        for add in noted:
            if add is not None:
                add()
        return result

    return kernel


def _is_on(tape: Tape) -> bool:
    """Is a tape on in this thread, or does it run an operation that it notes?"""
    if not tape.stack():
        return False
    count = internals.len_torch_function_stack()
    return (bool(count) and tape.is_on(count)) or tape.running_op() is not None


def _noted(tape: Tape, name: str, arguments: dict[str, Any]) -> Callable[[], None] | None:
    """Look at the operands of a collective before it runs; return what notes it on the tape of the innermost call.

    It is noted already, where its function in ``torch.distributed`` tells torch's modes: then only what it writes is.
    """
    call_tape = tape.stack()[-1]
    try:
        given, written = _operands(name, arguments)
        if tape.running_op() is not None:
            known = [ref for tensor in written if (ref := tape.values.lookup(tensor)) is not None]
            return lambda: tape.stack().writers.append(partial(_await_writes, known, tape.values))
        with untracked():
            outputs = TensorRefs()
            tape.codes_of(tuple(written), outputs)
            args = tape.codes_of(
                (*given, *[one for one in written if all(one is not each for each in given)]), TensorRefs()
            )
        line = user_line(sys._getframe(2), tape.lines)
        function = getattr(torch.distributed, _WRITING[name])
    except Exception as error:
        tape.note_failed(call_tape, error)
        return None

    def add() -> None:
        call_tape.untraceable = call_tape.untraceable or with_line(reasons.COMMUNICATES(), line)
        call_tape.entries.append(TapeEntry(function, args, {}, None, context_now(), line))
        _await_writes(outputs, tape.values, call_tape)
        tape.expects_writes()

    return add


def _operands(name: str, arguments: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors that a rank gives to a collective, and those that are written to."""
    own: list[Tensor] = []
    outputs: list[Tensor] = []
    for argument, content in arguments.items():
        tensors = [tensor for _, tensor in named_tensors(content)]
        if argument.startswith("output") and not argument.endswith("sizes"):
            outputs += tensors
        elif argument != "sparse_indices":
            own += tensors
    if name in _SUMS:
        return own, own
    if name.startswith("recv"):
        return [], own
    if name == "broadcast_":
        group = internals.c10d().ProcessGroup.unbox(arguments["process_group"])
        return (own, []) if arguments["root_rank"] == group.rank() else ([], own)
    return own, outputs


def _await_writes(outputs: list[TensorRef], values: ValueTable, call_tape: CallTape) -> None:
    """Drop the values of tensors and of all others in their memory; the last entry of a tape gets the new ones."""
    written, position = {ref.tensor_id for ref in outputs}, len(call_tape.entries) - 1
    storages = {ref.value.storage for ref in outputs} - {None}

    def tell(tensor_id: TensorId, value: Value) -> None:
        entry = call_tape.entries[position]
        call_tape.entries[position] = entry._replace(writes=(*entry.writes, (tensor_id, value)))

    for ref in list(values.refs.values()):
        if ref.tensor_id in written or ref.value.storage in storages:
            values.await_value(ref, partial(tell, ref.tensor_id))
