"""The tape of one call: its operations in order, with arguments and results as codes.

Codes hold no tensor alive; see :mod:`~fxdebug.capture.tape.encoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.reasons import Reason, ReasonText
from fxdebug.capture.replay.variables import Change
from fxdebug.capture.source.source_line import Line
from fxdebug.capture.tape.argument_copies import ArgumentCopies
from fxdebug.capture.tape.earlier_attributes import EarlierAttributes, RunStart
from fxdebug.capture.tape.encoding import tensor_ids_in
from fxdebug.capture.tensors.tensor_ref import TensorId, TensorRef
from fxdebug.capture.torch_state.grad_mode import Context
from fxdebug.capture.torch_state.internals import AttentionKernels
from fxdebug.data.values import Value
from fxdebug.errors import first_line

if TYPE_CHECKING:
    from fxdebug.capture.tape.raised import Raised


class TapeEntry(NamedTuple):
    """An operation, or a call of a child module (then ``tape`` is the child's).

    Graph templates have entries of the same form, with slots in the place of tensors: see
    :mod:`~fxdebug.capture.graphs.template`.
    """

    what: Any  # the function, or the module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    context: Context
    line: Line | None = None
    changed: tuple[int, tuple[int, ...], torch.dtype, bool] | None = None  # tensor_id, shape, dtype, requires_grad
    writes: tuple[tuple[TensorId, Value], ...] = ()  # the arguments it wrote to, with their values afterwards
    values: tuple[Value, ...] = ()  # of the tensors in the result, in order, right after the operation
    tape: CallTape | None = None
    kernels: AttentionKernels | None = None  # that it may choose from, where it computes attention


class TensorRefs(list[TensorRef]):
    """The tensors in the arguments or results of one operation, and how many more items may be walked."""

    MOST_ITEMS = 10_000  # in containers: a list that holds one list many times is small, but endless to walk
    DEEPEST = 24

    items_left = MOST_ITEMS
    plain = True  # are all of them plain tensors, of no subclass?

    def may_enter(self, container: Any, depth: int) -> bool:
        """May this container be walked? If not, it is an opaque object, and :attr:`untraceable` says so."""
        self.items_left -= len(container)
        if depth > self.DEEPEST:
            self.items_left = -1
        return self.items_left >= 0

    @property
    def untraceable(self) -> ReasonText | None:
        """The reason why the body must not be traced, if something was left out."""
        return reasons.CONTAINER_TOO_LARGE() if self.items_left < 0 else None


def debugger_failure(reason: Reason, error: Exception) -> ReasonText:
    """Return a reason for a failure of the debugger itself: it never reaches the model, and costs only the graph."""
    text = first_line(error)
    return reason(error=f"{type(error).__name__}: {text if len(text) < 100 else text[:99] + '…'}")


class CallTape:
    """The record of one call: its arguments and results as codes, and its operations.

    Three reasons may be set. ``unobserved``: why its operations were not noted. ``untraceable``: why a symbolic trace
    along the tape cannot be trusted. ``callers_modes``: why its graph must not run elsewhere, since a caller had put a
    function mode on for it.
    """

    line: Line | None = None  # the user's line that asked for the call
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any]
    out: Any = None
    raised: tuple[Raised, ...] = ()  # operations and calls that raised an exception, in order
    has_opaque_args = False  # are there objects among the arguments that are compared by identity?
    argument_copies: ArgumentCopies | None = None  # of those objects, as they were
    earlier_attributes: EarlierAttributes | None = None  # of its module, where it replaced some
    surroundings: tuple[Change, ...] = ()  # what its callers changed around it, of numbers, texts and flags
    # what its calls had left in attributes when it ended, by place: noted where the attributes are put back afterwards
    tensors_assigned: Mapping[Any, TensorId] | None = None
    run_start: RunStart | None = None  # of an outermost body: attributes that the run changed
    unobserved: ReasonText | None = None
    untraceable: ReasonText | None = None
    callers_modes: ReasonText | None = None
    # integers that its caller computed from sizes, by their position among the leaves of the arguments
    sizes_given: frozenset[int] = frozenset()
    handed_on: Mapping[int, Mapping[int, bool]] | None = None  # see ``in_place.handed_on``
    outermost = False  # was no body open when it began?
    dispatch_modes: tuple[Any, ...] = ()  # of an outermost body: those on around the run
    function_modes = 0  # how many were on when it began
    compiled_ops = 0  # how many of its operations are compiled code
    has_unseen_results = False  # did compiled code return what torch does not show?

    def __init__(self, index: int, module: nn.Module, forward: Callable[..., Any], context: Context) -> None:
        self.index = index
        self.module = module
        self.forward = forward
        self.code = getattr(forward, "__code__", None)
        self.kwargs = {}
        self.entries: list[TapeEntry] = []
        self.context = context
        # shape, dtype and requires_grad of its tensor arguments when it began, and their values
        self.input_layouts: dict[TensorId, tuple[tuple[int, ...], torch.dtype, bool]] = {}
        self.input_values: dict[TensorId, Value] = {}

    def tensor_ids(self) -> set[TensorId]:
        """Return its argument tensors and the tensors it made: a symbolic trace needs placeholders for them.

        An operation may return a tensor that it was given (``constant.to(x)``). If that came from elsewhere, a global
        say, and was not written to, the trace meets the tensor itself.
        """
        ids = {*self.input_layouts, *tensor_ids_in(self.args), *tensor_ids_in(self.kwargs)}
        elsewhere: set[TensorId] = set()
        for entry in self.entries:
            elsewhere.update(given for given in tensor_ids_in((entry.args, entry.kwargs)) if given not in ids)
            written = {tensor_id for tensor_id, _ in entry.writes}
            ids.update(made for made in tensor_ids_in(entry.out) if made in written or made not in elsewhere)
        return ids


# What calls make, and what they take past their arguments: from an attribute, a closure, a global ----


def calls_in(tape: CallTape) -> Iterator[CallTape]:
    """Yield all calls inside of a call, at any depth."""
    for entry in tape.entries:
        if entry.tape is not None:
            yield entry.tape
            yield from calls_in(entry.tape)


def computed_by(tape: CallTape) -> Iterator[TensorId]:
    """Yield the results of a body's operations that are neither its arguments nor its attributes."""
    earlier = set(tape.input_layouts)
    for entry in tape.entries:
        earlier.update(tensor_ids_in(entry.args), tensor_ids_in(entry.kwargs))
        if entry.tape is None:
            yield from (tensor_id for tensor_id in tensor_ids_in(entry.out) if tensor_id not in earlier)
        earlier.update(tensor_ids_in(entry.out))


def taken_by(tape: CallTape) -> set[TensorId]:
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


def takes_from_body(tape: CallTape, handed_over: Set[TensorId]) -> bool:
    """Does a call inside take a tensor of the body that is no argument of it, and that the body does not hand over?"""
    own = {*tape.input_layouts, *computed_by(tape)} - handed_over
    inner = list(calls_in(tape))
    return any(not own.isdisjoint(taken_by(call) - set(tensor_ids_in((call.args, call.kwargs)))) for call in inner)


def made_in(tape: CallTape) -> Iterator[TensorId]:
    """Yield the results of all operations and calls in a call, at any depth, in the order in which they returned."""
    for entry in tape.entries:
        if entry.tape is not None:
            yield from made_in(entry.tape)
        yield from tensor_ids_in(entry.out)


def made_in_calls(tape: CallTape) -> Iterator[TensorId]:
    """Yield the results of all operations inside the calls that a body makes."""
    for entry in tape.entries:
        if entry.tape is not None:
            yield from made_in(entry.tape)
