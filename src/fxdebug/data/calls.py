"""One call of one module, as a run left it, and what is said about it: failures, notes, parameters.

:class:`CallTree` is how a call finds its parent, its children and its graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from fxdebug.data.graphs import CallGraph, Graph, Guard, RunGraphs, Status
from fxdebug.data.values import Inputs, Outputs, Sharding, Stats
from fxdebug.errors import UsageError

if TYPE_CHECKING:
    import torch.fx

Origin: TypeAlias = Literal["registered", "late", "unregistered", "unnamed"]
ParameterKind: TypeAlias = Literal["parameter", "buffer"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that left a call. ``here`` says that no call below it raised it."""

    type: str
    message: str
    here: bool
    traceback: str | None = None
    source: str | None = None  # the line of the user's code that raised it, file.py:12

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Note:
    """Something that must be said: a statistic that failed, a value that could not be followed."""

    what: str
    where: str = ""
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of the model, as it was before the run and whether the run changed it.

    ``names`` are all names it is registered under (tied weights have several); ``before`` and
    ``stats`` are its statistics before and after the run, equal when ``changed`` is false and
    ``None`` when they were not taken.
    """

    names: tuple[str, ...]
    kind: ParameterKind
    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    storage: int | None = None
    persistent: bool = True
    changed: bool = False
    before: Stats | None = None
    stats: Stats | None = None
    sharding: Sharding | None = None

    @property
    def name(self) -> str:
        """The first name it is registered under."""
        return self.names[0]


class _InATree:
    """A call's place in its run: in a slot, and so no field, not compared, copied or pickled."""

    __slots__ = ("_tree",)
    _tree: CallTree | None


@dataclass(frozen=True)
class Call(_InATree):
    """One call of one module.

    ``path`` is the first name the module is registered under, as transformers' debugger has it;
    ``called_as`` the name it was called by where that can be told, ``aliases`` every name.
    ``number`` counts the calls of this path, ``index`` all calls of the trace in the order they began.
    ``inputs`` and ``outputs`` are what ``forward`` was given and returned; ``given`` and ``returned``
    are what the caller passed and got where hooks made that something else. ``origin`` is
    ``registered`` for a module that was in the model when the run began, ``late`` for one registered
    while it ran, ``unregistered`` for one that is in no parent's ``_modules``, ``unnamed`` for one that was
    registered under an empty name.
    ``duration`` is in seconds, without the time fxdebug itself took.
    """

    index: int
    path: str
    type: str
    number: int
    inputs: Inputs = field(default_factory=Inputs)
    outputs: Outputs | None = None
    error: Failure | None = None
    parent_index: int | None = None
    depth: int = 0
    method: str = "forward"
    source: str | None = None
    duration: float = 0.0
    origin: Origin = "registered"
    aliases: tuple[str, ...] = ()
    called_as: str | None = None
    given: Inputs | None = None
    returned: Outputs | None = None
    invoked_in: int | None = None  # the call that was running, where that is not the parent (generators)
    finished: int | None = None  # position in the order in which calls ended
    has_submodules: bool = False
    training: bool = False
    grad: bool = True
    thread: str | None = None  # the name of the thread, when it is not the one the run began in

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tree", None)

    def __hash__(self) -> int:
        return hash((self.index, self.path))

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))  # without the tree: the trace makes it again

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        object.__setattr__(self, "_tree", None)

    def __repr__(self) -> str:
        gave = (
            "raised" if self.error is not None else ", ".join(value.label for value in self.outputs or ()) or "nothing"
        )
        return f"<call {self.id} {self.type} → {gave}>"

    @property
    def id(self) -> str:
        """Path and call number, unique in the trace: ``encoder.layer.0#0``; the root is ``#0``."""
        return f"{self.path}#{self.number}"

    @property
    def children(self) -> tuple[Call, ...]:
        """The calls made directly inside this one, in execution order."""
        return () if self._tree is None else self._tree.children(self.index)

    @property
    def parent(self) -> Call | None:
        """The call this one was made in; ``None`` for the root."""
        return None if self._tree is None or self.parent_index is None else self._tree.call(self.parent_index)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What had to be said about this call."""
        return () if self._tree is None else self._tree.notes_of(self.index)

    @property
    def body(self) -> CallGraph | None:
        """What the call did inside; ``None`` for a run without graphs."""
        explanation = None if self._tree is None else self._tree.explanation
        return None if explanation is None else explanation.bodies[self.index]

    @property
    def status(self) -> Status | None:
        """How far its graph can be trusted: ``verified``, ``recorded``, ``opaque``; ``None`` without graphs."""
        return None if self.body is None else self.body.status

    @property
    def reason(self) -> str:
        """Why it is not more than recorded or opaque, in words that name the source line."""
        return "" if self.body is None else self.body.reason

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The assumptions a verified graph rests on."""
        return () if self.body is None else self.body.guards

    @property
    def graph(self) -> Graph | None:
        """The operations of its body, shared with all calls that did the same."""
        explanation = None if self._tree is None else self._tree.explanation
        number = None if explanation is None else explanation.bodies[self.index].graph
        return None if explanation is None or number is None else explanation.graphs[number]

    @property
    def code(self) -> str:
        """The text of the graph as a Python function, as torch.fx writes it."""
        return "" if self.graph is None else self.graph.code

    @property
    def fx(self) -> torch.fx.GraphModule:
        """The ``torch.fx.GraphModule`` of a verified body: runnable where its guards hold, refusing elsewhere.

        Raises ``UsageError`` for a recorded or opaque call (with the reason) and for a loaded trace.

        >>> import torch, fxdebug
        >>> relu = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2)).calls[1].fx
        >>> relu(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
        """
        if self._tree is None:
            raise UsageError("this call belongs to no trace")
        explain = self._tree.explain
        if explain is None:
            raise UsageError("this run has no graphs: it was made with graph=False")
        if isinstance(explain, RunGraphs):
            raise UsageError(
                "this trace was loaded: running a graph needs the model; trace it again, or read call.code"
            )
        return explain.fx(self)

    def walk(self) -> Iterator[Call]:
        """This call and all below it, in execution order."""
        pending = [self]
        while pending:
            call = pending.pop()
            yield call
            pending.extend(reversed(call.children))


class Explains(Protocol):
    """Makes the graphs of a run when they are asked for, and runs them (see ``capture.live``)."""

    def call_graphs(self, count: int) -> RunGraphs: ...

    def fx(self, call: Call) -> torch.fx.GraphModule: ...


def explanation_of(explain: Explains | RunGraphs | None, count: int) -> RunGraphs | None:
    """The graphs of a run of ``count`` calls, made now if they were not made before."""
    return explain if explain is None or isinstance(explain, RunGraphs) else explain.call_graphs(count)


class CallTree:
    """The calls of one run by their index, for a call that is asked for its parent, its children, its graph.

    Every call holds its tree; the tree holds the calls weakly and only their fields strongly. So nothing here is a
    circle: with the last reference to a trace and its calls all of it goes at once, the model included. And while
    somebody holds one call, every other can be had: one that is gone is made again of its fields, equal to the first.
    """

    __slots__ = ("_below", "_calls", "_fields", "_notes_of", "explain", "notes")

    def __init__(self, calls: Sequence[Call], notes: tuple[Note, ...], explain: Explains | RunGraphs | None) -> None:
        self.notes = notes
        self.explain = explain
        self._calls = [weakref.ref(call) for call in calls]
        self._fields = [vars(call) for call in calls]
        self._below: list[list[int]] = [[] for _ in calls]
        self._notes_of: dict[int, list[Note]] = {}
        for call in calls:
            if call.parent_index is not None:
                self._below[call.parent_index].append(call.index)  # of a damaged file: IndexError
            object.__setattr__(call, "_tree", self)
        for note in notes:
            if note.call is not None:
                self._notes_of.setdefault(note.call, []).append(note)

    def call(self, index: int) -> Call:
        """The call itself while somebody holds it, an equal one afterwards."""
        found = self._calls[index]()
        if found is None:
            found = object.__new__(Call)
            object.__setattr__(found, "__dict__", self._fields[index])
            object.__setattr__(found, "_tree", self)
            self._calls[index] = weakref.ref(found)
        return found

    def children(self, index: int) -> tuple[Call, ...]:
        """The calls made directly inside one, in execution order."""
        return tuple([self.call(below) for below in self._below[index]])

    def notes_of(self, index: int) -> tuple[Note, ...]:
        """What had to be said about a call."""
        return tuple(self._notes_of.get(index, ()))

    @property
    def explanation(self) -> RunGraphs | None:
        """The graphs of the run."""
        return explanation_of(self.explain, len(self._fields))
