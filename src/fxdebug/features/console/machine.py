"""The machine that the console steps: it stands at one stop of a run, recorded or live.

A run is a sequence of stops, in the order of execution. A call has two: ``call``, where it begins and its arguments are
known, and ``return``, where it has ended, with its results or with the exception that left it. An operation has one,
``op``, after it has run: its operands and its results are known. Operations that neither return nor write to a tensor,
such as ``size``, have none. A machine moves from stop to stop; all words of the
console (step, next, finish, until, continue …) are made of ``forward`` and ``backward`` with a condition.

Two machines keep to this: a recorded run (:mod:`~fxdebug.features.console.recorded`), which has every stop from the
beginning and can go back, and a live one, whose forward is paused in its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from fxdebug.data.calls import Call, Failure
from fxdebug.data.graphs import Status
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.query.measures import Number

if TYPE_CHECKING:
    import torch

StopKind: TypeAlias = Literal["call", "op", "return"]
NameKind: TypeAlias = Literal["path", "class", "operation"]
Slots: TypeAlias = Sequence[tuple[str, Value]]  # tensors with their slots: args[0], a keyword, a key, "" for a result


class Stop(Protocol):
    """A place in a run where a machine can stand.

    Conditions are asked at every stop that a machine passes, so the first properties must cost next to nothing;
    ``inputs``, ``results`` and ``number_of`` may be computed when they are asked for.
    """

    @property
    def number(self) -> int:
        """The position in the order of the run, from 0."""

    @property
    def kind(self) -> StopKind:
        """The kind of stop: a call begins, an operation has run, a call has ended."""

    @property
    def depth(self) -> int:
        """The number of calls around the one that begins, runs or ends here; 0 for the model's own."""

    @property
    def path(self) -> str:
        """The path of the module whose call it is; empty for the model."""

    @property
    def paths(self) -> Sequence[str]:
        """Every path under which that module is registered."""

    @property
    def type(self) -> str:
        """The class of that module."""

    @property
    def call_id(self) -> str:
        """The id of the call: path and number, ``h.0.attn#0``, the model's own ``#0``."""

    @property
    def op(self) -> str:
        """The name of the operation (``softmax``); empty where a call begins or ends."""

    @property
    def id(self) -> str:
        """The id of the operation (``h.0.attn#0/softmax``) or of the call, unique among stops of its kind."""

    @property
    def source(self) -> str | None:
        """The user's line that ran the operation or made the call: ``model.py:12``."""

    @property
    def status(self) -> Status | None:
        """The trust in the graph of the call: ``None`` where it is not known, or not known yet."""

    @property
    def error(self) -> Failure | None:
        """The exception that left the call, at a ``return`` that is one; else ``None``."""

    @property
    def inputs(self) -> Slots:
        """The tensors that went in: the arguments of the call, also where it has ended, or the operands."""

    @property
    def results(self) -> Slots:
        """The tensors that came out; none where a call begins."""

    def number_of(self, measure: str) -> Number:
        """Return the number of a measure that is no statistic of a tensor, such as ``duration``, where it is known."""


Until: TypeAlias = Callable[[Stop], bool]


class Machine(Protocol):
    """A run that stands at one stop and can be moved.

    ``forward`` and ``backward`` go at least one stop, then on to the first stop for which ``until`` is true. Without
    one they end at the last stop (the ``return`` of the model) or at the first. They return whether ``until`` was true.
    While ``until`` is asked, the machine stands at the stop that it is asked about.
    """

    @property
    def name(self) -> str:
        """The class of the model."""

    @property
    def stop(self) -> Stop:
        """The stop at which the machine stands."""

    @property
    def count(self) -> int | None:
        """The number of stops of the whole run; ``None`` where it is not known yet."""

    @property
    def frames(self) -> Sequence[Stop]:
        """The ``call`` stops of the open calls, the model's own first; the last is that of the present call."""

    @property
    def ended(self) -> bool:
        """Is the run at its last stop?"""

    @property
    def interrupted(self) -> bool:
        """Did Ctrl-C end the last movement, somewhere on the way?"""

    def forward(self, until: Until) -> bool:
        """Go on, at least one stop; see the class. Nothing happens at the end of the run."""

    def backward(self, until: Until) -> bool:
        """Go back, at least one stop. Raises ``UsageError`` where a run cannot go back."""

    def goto(self, number: int) -> None:
        """Stand at the stop of a number. Raises ``UsageError`` for one that cannot be reached."""

    def find_stop(self, name: str) -> int:
        """Return the number of the stop of an operation, or of the beginning of a call, by its id or path.

        Raises ``NotFound`` with the nearest names.
        """

    def operations(self, frame: Stop) -> Sequence[Stop]:
        """Return the stops directly in a call, as far as they are known: its operations and the calls that it made."""

    def has_operations(self, frame: Stop) -> bool:
        """Are the operations of a call known? If not, its results are looked at where it has ended."""

    def values(self, frame: Stop) -> Mapping[str, Value]:
        """Return the tensors that exist in a call at the present stop, by name.

        Names are those of the graph (``x``, ``linear``, ``softmax_1``), of weights (``weight``), and slots.
        """

    def value(self, frame: Stop, name: str) -> Value | None:
        """Return one of :meth:`values`; ``None`` where it does not exist yet, or not at all."""

    def now(self, value: Value) -> Value:
        """Return the version of a tensor that its memory holds at the present stop."""

    def weight(self, name: str) -> Value | None:
        """Return a parameter or buffer by its name in the model, as it is at the present stop, where it is known."""

    def tensor(self, value: Value) -> torch.Tensor:
        """Return the data of a value. Raises ``LoadError`` where the run did not keep it."""

    def objects(self, frame: Stop) -> Mapping[str, object]:
        """Return what a Python expression may name beside tensors: the module as ``self``, on a live run."""

    def evaluating(self) -> AbstractContextManager[object]:
        """Return the block in which the Python of an expression is run."""

    def source_text(self, source: str) -> str | None:
        """Return the text of a source line, ``model.py:12``, where it is known."""

    def known_names(self, kind: NameKind) -> Collection[str]:
        """Return the paths, classes or operations that the run has; for a live one, those that it may have."""

    @property
    def knows_all_names(self) -> bool:
        """Can the run have no other names than ``known_names``? A breakpoint for another one is an error then."""

    @property
    def trace(self) -> TraceData:
        """The run as a trace, for searches: of a live run what has been recorded up to now."""

    def call_of(self, frame: Stop) -> Call | None:
        """Return the record of a call, where there is one yet."""

    def differs_from(self, reference: TraceData) -> Until:
        """Return a condition that holds where the run adds a difference to that of another run, the reference."""

    def close(self) -> None:
        """End the run: a live forward ends, and everything is restored."""
