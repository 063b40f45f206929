"""The record of one call of one module, and of the failures, notes and parameters of a run.

A call finds its parent, its children and its graph through a :class:`CallTree`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from fxdebug.brief import brief
from fxdebug.data import call_html
from fxdebug.data.graphs import CallGraph, Graph, Guard, RunGraphs, Status
from fxdebug.data.values import Inputs, Outputs, Sharding, Stats
from fxdebug.errors import UsageError
from fxdebug.printable import printable, printable_lines

if TYPE_CHECKING:
    import torch.fx

Origin: TypeAlias = Literal["registered", "late", "unregistered", "unnamed"]
ParameterKind: TypeAlias = Literal["parameter", "buffer"]

_SHOWN = 3  # results of a call in its repr
OUTSIDE_FORWARD = "(outside forward)"  # the method of a root that stands for calls made outside the model's forward


@brief
@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that left a call; ``here`` is true for the call that raised it, false for the calls around it."""

    type: str
    message: str
    here: bool
    traceback: str | None = None
    source: str | None = None  # the line of the user's code that raised it, file.py:12

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@brief
@dataclass(frozen=True, slots=True)
class Note:
    """A remark about the run for its reader: a statistic that failed, a value that could not be followed."""

    what: str
    where: str = ""
    call: int | None = None


@brief
@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of the model, before the run and after it if the run changed it.

    ``names`` are all names it is registered under (tied weights and shared modules have several); ``before`` and
    ``stats`` are its statistics before and after the run, equal when ``changed`` is false and
    ``None`` when they were not taken. ``sums`` are the sums over its slices before the run, packed by
    :mod:`~fxdebug.data.weight_sums`; small models have them.
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
    sums: str | None = None

    @property
    def name(self) -> str:
        """The first name it is registered under."""
        return self.names[0]

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """The shape over all ranks; ``shape`` is that of the local part of a distributed one."""
        return self.shape if self.sharding is None else self.sharding.shape

    @property
    def elements(self) -> int | None:
        """The number of elements over all ranks; ``None`` for one of a lazy module that never ran, and has no shape."""
        is_lazy = not self.shape and self.storage is None and self.device != "meta"
        return None if is_lazy else math.prod(self.whole_shape)


class Code(str):
    """The text of a graph, which a prompt and a notebook show line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _TreeSlot:
    """The link of a call to its run; a slot is no dataclass field, so it is not compared, copied or pickled."""

    __slots__ = ("_tree",)
    _tree: CallTree | None


@dataclass(frozen=True)
class Call(_TreeSlot):
    """One call of one module.

    ``path`` is the first name the module is registered under, as in transformers' debugger; ``aliases`` are all its
    names, and ``called_as`` the name it was called by, where that is known. ``number`` counts the calls of this
    path, ``index`` all calls of the trace in the order they began.

    ``inputs`` are the arguments of ``forward`` and ``outputs`` its result. Where hooks changed these, ``given`` holds
    the arguments that the caller passed, before the pre-forward hooks, and ``returned`` the result that the caller
    got, after the forward hooks; both are ``None`` where no hook changed anything. Of the call of the model itself,
    they also hold what a ``__call__`` of its class changed.

    ``origin`` is ``registered`` for a module that was in the model when the run began, ``late`` for one registered
    during the run, ``unregistered`` for one in no parent's ``_modules``, and ``unnamed`` for one registered under an
    empty name. ``duration`` is in seconds, without the time that fxdebug itself took. The model's own code is slower
    than in a plain run, as recording pushes it out of the processor's caches, and torch takes time to show us each
    operation: measured were 3 µs for each call inside and, with graphs, 6 µs; 12 and 23 µs without the native core.
    :func:`fxdebug.profile` times calls without recording them.
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
        return dict(vars(self))  # without the tree: the trace builds it again

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        object.__setattr__(self, "_tree", None)

    def __repr__(self) -> str:
        every = [value.label for value in self.outputs or ()]
        more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN + 1 else ""
        labels = ", ".join(every[:_SHOWN] if more else every) + more
        result = "raised" if self.error is not None else labels or "nothing"
        return printable(f"<call {self.id} {self.type} → {result}>")

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
        """Notes of the run about this call."""
        return () if self._tree is None else self._tree.notes_of(self.index)

    @property
    def body(self) -> CallGraph | None:
        """The graph of the call with its status and its values; ``None`` for a run without graphs."""
        graphs = None if self._tree is None else self._tree.call_graphs
        return None if graphs is None else graphs.bodies[self.index]

    @property
    def status(self) -> Status | None:
        """The trust in its graph: ``verified``, ``recorded`` or ``opaque``; ``None`` without graphs."""
        return None if self.body is None else self.body.status

    @property
    def reason(self) -> str:
        """Reason why the graph is only recorded or opaque, with the source line if there is one; empty if verified."""
        return "" if self.body is None else self.body.reason

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The assumptions under which a verified graph holds."""
        return () if self.body is None else self.body.guards

    @property
    def graph(self) -> Graph | None:
        """The operations of its body; calls that ran the same operations share one graph."""
        graphs = None if self._tree is None else self._tree.call_graphs
        number = None if graphs is None else graphs.bodies[self.index].graph
        return None if graphs is None or number is None else graphs.graphs[number]

    @property
    def code(self) -> Code:
        """The text of the graph as a Python function, as torch.fx writes it; a notebook shows it in lines."""
        return Code("" if self.graph is None else printable_lines(self.graph.code))

    @property
    def fx(self) -> torch.fx.GraphModule:
        """The ``torch.fx.GraphModule`` of a verified call; running it checks its guards first.

        Raises ``UsageError`` for a recorded or opaque call (with the reason) and for a loaded trace.

        >>> import torch, fxdebug
        >>> relu = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2)).calls[1].fx
        >>> relu(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
        """
        if self._tree is None:
            raise UsageError(f"call {self.id} belongs to no trace: take it from trace.calls or trace.find()")
        source = self._tree.graph_source
        if source is None:
            raise UsageError("this run has no graphs: it was made with graph=False")
        if isinstance(source, RunGraphs):
            raise UsageError(
                "this trace was loaded: running a graph needs the model; trace it again, or read call.code"
            )
        return source.fx(self)

    def _repr_html_(self) -> str:
        return call_html.call_html(self)

    def with_ancestors(self) -> Iterator[Call]:
        """Yield this call and all calls that it is in, innermost first."""
        call: Call | None = self
        while call is not None:
            yield call
            call = call.parent

    def walk(self) -> Iterator[Call]:
        """Yield this call and all calls below it, in execution order."""
        pending = [self]
        while pending:
            call = pending.pop()
            yield call
            pending.extend(reversed(call.children))


class GraphSource(Protocol):
    """Builds the graphs of a live run when they are first asked for, and makes runnable ones."""

    def call_graphs(self, count: int) -> RunGraphs: ...

    def fx(self, call: Call) -> torch.fx.GraphModule: ...


def call_graphs_of(source: GraphSource | RunGraphs | None, count: int) -> RunGraphs | None:
    """Return the graphs of a run of ``count`` calls; the first time, a live run builds them."""
    return source if source is None or isinstance(source, RunGraphs) else source.call_graphs(count)


class CallTree:
    """The calls of one run by index: finds a call's parent, its children and its graph.

    Every call refers to its tree. The tree refers to the calls weakly, and strongly only to their fields. So there is
    no reference cycle: when the last reference to a trace and its calls goes, all of it is freed at once, the model
    included. As long as one call is referenced, every other one can be reached: a call that was freed is built again
    from its fields, equal to the first.
    """

    __slots__ = ("_calls", "_children", "_fields", "_notes_of", "facts", "graph_source", "notes")

    def __init__(
        self, calls: Sequence[Call], notes: tuple[Note, ...], graph_source: GraphSource | RunGraphs | None
    ) -> None:
        self.notes = notes
        self.graph_source = graph_source
        self.facts: dict[str, Any] = {}  # what the trace has beside its calls, to build it again
        self._calls = [weakref.ref(call) for call in calls]
        self._fields = [vars(call) for call in calls]
        self._children: dict[int, list[int]] = {}  # of the calls that have some
        self._notes_of: dict[int, list[Note]] = {}
        for call in calls:
            parent = call.parent_index
            if parent is not None:
                if parent >= len(calls):
                    raise IndexError(f"there is no call {parent}")  # a damaged file
                self._children.setdefault(parent, []).append(call.index)
            object.__setattr__(call, "_tree", self)
        for note in notes:
            if note.call is not None:
                self._notes_of.setdefault(note.call, []).append(note)

    def __len__(self) -> int:
        return len(self._fields)

    def call(self, index: int) -> Call:
        """Return the call at an index: the same object as long as it is referenced, an equal one afterwards."""
        call = self._calls[index]()
        if call is None:
            call = object.__new__(Call)
            object.__setattr__(call, "__dict__", self._fields[index])
            object.__setattr__(call, "_tree", self)
            self._calls[index] = weakref.ref(call)
        return call

    def children(self, index: int) -> tuple[Call, ...]:
        """Return the calls made directly inside a call, in execution order."""
        return tuple([self.call(child) for child in self._children.get(index, ())])

    def notes_of(self, index: int) -> tuple[Note, ...]:
        """Return the notes about a call."""
        return tuple(self._notes_of.get(index, ()))

    @property
    def call_graphs(self) -> RunGraphs | None:
        """The graphs of the run."""
        return call_graphs_of(self.graph_source, len(self._fields))
