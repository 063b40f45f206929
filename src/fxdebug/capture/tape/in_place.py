"""Writes into existing memory, and changes of tensors that no operation on the tape explains."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch
from torch import Tensor

from fxdebug.capture import reasons
from fxdebug.capture.source.source_line import Line, user_line, with_line
from fxdebug.capture.tape.call_tape import CallTape, TensorRefs
from fxdebug.capture.tensors.describe import shape_of
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
