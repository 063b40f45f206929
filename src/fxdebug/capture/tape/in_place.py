"""Writes into existing memory, changes of tensors that no operation on the tape explains, and results from before."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fxdebug.capture import reasons
from fxdebug.capture.source.source_line import Line, user_line, with_line
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, TensorRefs
from fxdebug.capture.tape.changed_arguments import result_in
from fxdebug.capture.tape.encoding import leaves_in, tensor_ids_in
from fxdebug.capture.tape.op_traits import may_write
from fxdebug.capture.tensors.special_tensors import shape_of
from fxdebug.capture.tensors.tensor_ref import TensorId, TensorRef
from fxdebug.capture.tensors.tensor_state import version_of
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import Value


class InPlaceWrites:
    """The writes of a run's operations, found by the versions of tensors; ``any``: has there been one yet?"""

    def __init__(self, values: ValueTable, lines: dict[tuple[int, int], Line]) -> None:
        self.any = False
        self._values = values
        self._lines = lines

    def written(self, refs: TensorRefs) -> tuple[tuple[TensorId, Value], ...]:
        """Return the arguments that the operation just run has written to, with their new values."""
        writes: tuple[tuple[TensorId, Value], ...] = ()
        for entry in refs:
            tensor = entry()
            if tensor is None:
                continue
            gradient = tensor.requires_grad
            if entry.version is not None and tensor._version != entry.version:
                writes = (*writes, (entry.tensor_id, self._values.value_of(tensor, keep=False)))
                self.any = True
                base = tensor._base
                whole = None if base is None else self._values.lookup(base)
                if base is not None and whole is not None:  # the base depends on writes to its view
                    whole.requires_grad = base.requires_grad
                gradient = tensor.requires_grad
            entry.requires_grad = gradient
        return writes

    def note_escape(self, refs: Iterable[TensorRef]) -> None:
        """Note that the memory of these tensors may be written to from now on without a new version."""
        with untracked():
            for entry in refs:
                self._values.mark_unversioned(entry)

    def catch_up(self, tape: CallTape, refs: TensorRefs) -> None:
        """Note new values of arguments whose memory was written to through another tensor.

        Such an argument shares memory with a tensor that an earlier operation wrote to. Its new value is added to the
        writes of that operation's entry.
        """
        with untracked():
            for ref in refs:
                tensor = ref()
                if tensor is None or ref.version is None or version_of(tensor) == ref.version:
                    continue
                awaited = self._values.is_awaited(ref)
                value = self._values.value_of(tensor, keep=False, weights=False)
                if awaited:
                    continue  # a collective wrote it, which knows now
                for position in reversed(range(len(tape.entries))):
                    entry = tape.entries[position]
                    if any(written.storage == value.storage for _, written in entry.writes):
                        tape.entries[position] = entry._replace(writes=(*entry.writes, (ref.tensor_id, value)))
                        break

    def check_gradients(self, tape: CallTape, refs: list[TensorRef], by_operation: bool = False) -> None:
        """Mark the body untraceable if a tensor's gradient flag changed since it was noted.

        The tensor then went through code that the tape does not see. ``by_operation``: the caller is the tape's
        ``__torch_function__``, so that the line of the operation can be named.
        """
        if not refs or tape.untraceable is not None:
            return
        with internals.DisableTorchFunction():  # no subclass and no mode may see this query
            known = [(entry(), entry.requires_grad) for entry in refs]
            changed = [tensor is not None and tensor.requires_grad != gradient for tensor, gradient in known]
        if any(changed):
            line = user_line(sys._getframe(2), self._lines) if by_operation else None
            reason = reasons.GRADIENT_CHANGED if line is None else reasons.GRADIENT_CHANGED_BEFORE
            tape.untraceable = with_line(reason(), line)

    def changed_layout(self, known: TensorRef, tensor: Tensor) -> tuple[int, tuple[int, ...], torch.dtype, bool] | None:
        """Return id, shape, dtype and requires_grad of a tensor if an in-place operation changed one of these."""
        first = self._values.first_values[known.tensor_id]
        if tensor.is_nested:
            return None
        now = shape_of(tensor), str(tensor.dtype)[6:], tensor.requires_grad
        if now == (first.shape, first.dtype, first.requires_grad):
            return None
        return known.tensor_id, now[0], tensor.dtype, now[2]


# Results that were there before ------------------------------------------------------------------

# Of operations that return an argument, as ``x.float()`` may, and of such calls. Both names of such a tensor are one
# object, so a tape cannot tell which of them a later operation was given. A symbolic trace can: there each name is a
# placeholder of its own. Where the operation has written to the tensor, it has its new numbers under both names.

HandedOn: TypeAlias = Mapping[int, Mapping[int, bool]]
"""By entry, and by number of the tensor in its result: was the tensor written to?"""

_NONE: HandedOn = MappingProxyType({})


def handed_on(tape: CallTape) -> HandedOn:
    """Return the results on a tape that are tensors from before, and whether each was written to."""
    if tape.handed_on is None:
        tape.handed_on = _found(tape) or _NONE
    return tape.handed_on


def written_in(results: HandedOn) -> frozenset[tuple[int, int]]:
    """Return those of the results that were written to."""
    return frozenset([(index, place) for index, found in results.items() for place in found if found[place]])


def tensors_returned(entry: TapeEntry) -> Iterator[TensorId]:
    """Yield the tensors in a result, in order, without those that lie in objects."""
    if type(entry.out) is TensorId:
        yield entry.out
    else:
        leaves = leaves_in(result_in(entry.out), in_objects=False)
        yield from (leaf for leaf in leaves if type(leaf) is TensorId)


def _found(tape: CallTape) -> dict[int, dict[int, bool]]:
    found: dict[int, dict[int, bool]] = {}
    numbers: dict[TensorId, int | None] = dict.fromkeys(tensor_ids_in((tape.args, tape.kwargs)))  # of their values
    numbers.update({tensor_id: value.number for tensor_id, value in tape.input_values.items()})
    for index, entry in enumerate(tape.entries):
        for argument in entry.args:
            if type(argument) is TensorId:
                numbers.setdefault(argument, None)
            elif type(argument) in (tuple, list, dict):
                numbers.update({each: None for each in tensor_ids_in(argument) if each not in numbers})
        if entry.kwargs:
            numbers.update({each: None for each in tensor_ids_in(entry.kwargs) if each not in numbers})
        for place, (tensor_id, value) in enumerate(zip(tensors_returned(entry), entry.values)):
            if tensor_id in numbers:
                before = numbers[tensor_id]
                is_written = before not in (None, value.number) or _writes(entry, tensor_id)
                found.setdefault(index, {})[place] = is_written
            numbers[tensor_id] = value.number
        for tensor_id, value in entry.writes:
            numbers[tensor_id] = value.number
    return found


def _writes(entry: TapeEntry, tensor_id: TensorId) -> bool:
    """Does an entry write to a tensor that it returns, though perhaps the numbers that were there?"""
    if any(written == tensor_id for written, _ in entry.writes):
        return True
    if not isinstance(entry.what, nn.Module):
        is_changed = entry.changed is not None and entry.changed[0] == tensor_id
        return is_changed or may_write(entry.what, entry.kwargs) or entry.kwargs.get("inplace") is True
    if entry.tape is None or not _without_versions(entry):
        return False
    inner: list[Any] = [each for each in entry.tape.entries if tensor_id in tensors_returned(each)]
    return any(_writes(each, tensor_id) for each in inner)


def _without_versions(entry: TapeEntry) -> bool:
    """Did it run in inference mode, where tensors do not count their writes?"""
    return entry.context[1]
