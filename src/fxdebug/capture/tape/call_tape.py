"""What one call did, as notes: its arguments and results as codes, and its operations in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.reasons import Reason, Words
from fxdebug.capture.tape.encoding import Copies, uids_in
from fxdebug.capture.tape.source_line import Line
from fxdebug.capture.tensors.tensor_ref import TensorId, TensorRef
from fxdebug.capture.torch_state.grad_mode import Context
from fxdebug.data.values import Value
from fxdebug.errors import first_line


class TapeEntry(NamedTuple):
    """One operation, or one call of a child module (then ``body`` is the child's)."""

    what: Any  # the function, or the module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    context: Context
    line: Line | None = None
    changed: tuple[int, tuple[int, ...], torch.dtype, bool] | None = None  # uid, shape, dtype, requires_grad
    writes: tuple[tuple[TensorId, Value], ...] = ()
    values: tuple[Value, ...] = ()  # of the tensors in the result, in order, right after it
    body: CallTape | None = None


class TensorRefs(list[TensorRef]):
    """The tensors met in the arguments or results of one operation, and how much more of those is looked at."""

    MOST = 10_000  # items of containers: a list of lists that are one and the same is small, and endless to walk
    DEEPEST = 24

    left = MOST
    plain = True  # is none of them of a class of its own?

    def room_for(self, container: Any, depth: int) -> bool:
        """May this container be walked? Otherwise it is known as an object only, and :attr:`full` says so."""
        self.left -= len(container)
        if depth > self.DEEPEST:
            self.left = -1
        return self.left >= 0

    @property
    def full(self) -> Words | None:
        """What makes the body untrustworthy, if something was left out."""
        return reasons.CONTAINER_TOO_LARGE() if self.left < 0 else None


def unnoted(reason: Reason, error: Exception) -> Words:
    """Nothing that goes wrong in noting reaches the model: the body is then shown as far as it is known."""
    text = first_line(error)
    return reason(error=f"{type(error).__name__}: {text if len(text) < 100 else text[:99] + '…'}")


class CallTape:
    """What one call did: its arguments and results as codes, and its tape."""

    __slots__ = (
        "args", "before", "code", "context", "copies", "entries", "forward", "functions", "given", "hazard", "index",
        "kwargs", "line", "modes", "module", "opaque", "out", "outermost", "regions", "suspended", "under",
    )  # fmt: skip

    def __init__(self, index: int, module: nn.Module, forward: Callable[..., Any], context: Context) -> None:
        self.index = index
        self.module = module
        self.forward = forward
        self.code = getattr(forward, "__code__", None)
        self.line: Line | None = None  # where it was called, if that is the user's
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.out: Any = None
        self.entries: list[TapeEntry] = []
        self.context = context
        self.before: dict[
            TensorId, tuple[tuple[int, ...], torch.dtype, bool]
        ] = {}  # what its inputs were when it began
        self.given: dict[TensorId, Value] = {}  # and the values they were
        self.opaque = False  # was it given objects that only identity tells apart?
        self.copies: Copies | None = None  # of those objects, as they were
        self.suspended: Words | None = None  # why there is no tape
        self.outermost = False  # no body was open when it began
        self.hazard: Words | None = None  # what makes a symbolic trace of it untrustworthy
        self.modes: tuple[Any, ...] = ()  # dispatch modes that were on around the run
        self.functions = 0  # how many function modes were on when it began
        self.under: str | None = None  # the function modes that a caller put on for it
        self.regions = 0  # how many of its operations are compiled code

    def met(self) -> set[TensorId]:
        """The tensors that it was given or that came out of an operation: a trace of it would need stand-ins."""
        found = set(self.before)
        for code in (self.args, self.kwargs, *[entry.out for entry in self.entries]):
            if type(code) is TensorId:
                found.add(code)
            elif code:
                found.update(uids_in(code))
        return found
