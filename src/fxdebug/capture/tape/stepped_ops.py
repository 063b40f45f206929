"""Stop after each operation of a tape, and put another result in the place of the one that it returned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor

from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tensors.tensor_ref import TensorRef
from fxdebug.capture.torch_state import internals


class OpStepper(Protocol):
    """Stands around every operation of a run; what it raises passes through the model to the caller."""

    def before_op(self, function: Any, args: Any, kwargs: Any) -> None:
        """Look at an operation that is about to run."""

    def after_op(self, call_tape: CallTape, entry: TapeEntry, result: Any) -> Any:
        """Look at an operation that ran; return its result, or what takes the place of it."""


def put_result(result: Any, new: Any, operands: Iterable[TensorRef]) -> Any:
    """Return what replaces a result: the result itself, overwritten, if it is one of the operands.

    Code may ignore what an operation in place returns (``x.add_(1)``), and use its operand.
    """
    if isinstance(result, Tensor) and isinstance(new, Tensor) and any(ref() is result for ref in operands):
        with internals.DisableTorchFunction():
            return result.copy_(new)
    return new


def edited(given: Any) -> Any:
    """Stand on a tape for an edit of arguments or of a result: it was given these, and made others of them."""
    return given
