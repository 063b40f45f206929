"""What one forward pass left behind: plain, frozen data without torch in it.

A :class:`Trace` holds every :class:`Call` of a module and every :class:`~fxdebug.values.Value` that
went in or out of one. Everything here is equal by value and survives ``save`` and ``load``; only
``Trace.output``, the live object the model returned, and where the run is stored do not take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from fxdebug.errors import UsageError
from fxdebug.held import are_held
from fxdebug.ops import Body, Explanation, Graph, Guard
from fxdebug.questions import Questions
from fxdebug.values import Inputs, Outputs, Sharding, Stats, Value

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


@dataclass(frozen=True)
class Call:
    """One call of one module.

    ``path`` is the first name the module is registered under, as transformers' debugger has it;
    ``called_as`` the name it was called by where that can be told, ``aliases`` every name.
    ``number`` counts the calls of this path, ``index`` all calls of the trace in the order they began.
    ``inputs`` and ``outputs`` are what ``forward`` was given and returned; ``given`` and ``returned``
    are what the caller passed and got where hooks made that something else. ``origin`` is
    ``registered`` for a module that was in the model when the run began, ``late`` for one registered
    while it ran, ``unregistered`` for one that is in no parent's ``_modules``.
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
    origin: str = "registered"
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
    _links: _Links = field(default_factory=lambda: _Links(), init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash((self.index, self.path))

    def __getstate__(self) -> dict[str, Any]:
        return {name: held for name, held in vars(self).items() if name != "_links"}  # the trace makes them again

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _links=_Links())

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
        return self._links.children

    @property
    def parent(self) -> Call | None:
        """The call this one was made in; ``None`` for the root."""
        return self._links.parent

    @property
    def notes(self) -> tuple[Note, ...]:
        """What had to be said about this call."""
        return self._links.notes

    @property
    def body(self) -> Body | None:
        """What the call did inside; ``None`` for a run without graphs."""
        explanation = self._links.explanation()
        return None if explanation is None else explanation.bodies[self.index]

    @property
    def status(self) -> str | None:
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
        explanation = self._links.explanation()
        number = None if explanation is None else explanation.bodies[self.index].graph
        return None if explanation is None or number is None else explanation.graphs[number]

    @property
    def code(self) -> str:
        """The text of the graph as a Python function, as torch.fx writes it."""
        return "" if self.graph is None else self.graph.code

    @property
    def fx(self) -> Any:
        """The ``torch.fx.GraphModule`` of a verified body: runnable where its guards hold, refusing elsewhere.

        Raises ``UsageError`` for a recorded or opaque call (with the reason) and for a loaded trace.
        """
        from fxdebug import api

        if not self._links.count:
            raise UsageError("this call belongs to no trace")
        return api.fx(self._links.explain, self)

    def walk(self) -> Iterator[Call]:
        """This call and all below it, in execution order."""
        pending = [self]
        while pending:
            call = pending.pop()
            yield call
            pending.extend(reversed(call.children))


@dataclass(slots=True)
class _Links:
    """Where a call stands in its trace: set once, when the trace is made."""

    children: tuple[Call, ...] = ()
    parent: Call | None = None
    notes: tuple[Note, ...] = ()
    explain: Explains | Explanation | None = None
    count: int = 0  # calls of the trace; 0: it is in none

    def explanation(self) -> Explanation | None:
        """The graphs of the run the call is in."""
        return _explanation(self.explain, self.count)

    def clear(self) -> None:
        """The call stands nowhere."""
        self.children, self.parent, self.notes, self.explain, self.count = (), None, (), None, 0


class Data(Protocol):
    """Where a trace finds what was kept of the run besides numbers (see ``store``)."""

    def tensor(self, value: Value) -> Any: ...

    def lines(self, value: Value) -> list[str] | None: ...

    def printed(self, value: Value) -> tuple[str, str, str, str] | None: ...


class Explains(Protocol):
    """Makes the graphs of a run when they are asked for, and runs them (see ``capture.live``)."""

    def explanation(self, count: int) -> Explanation: ...

    def fx(self, call: Call) -> Any: ...


def _explanation(explain: Explains | Explanation | None, count: int) -> Explanation | None:
    return explain if explain is None or isinstance(explain, Explanation) else explain.explanation(count)


class _NoOutput:
    def __repr__(self) -> str:
        return "no output: this trace was loaded or its run raised"

    def __reduce__(self) -> str:
        return "NO_OUTPUT"  # there is one


NO_OUTPUT = _NoOutput()
_CONTAINERS = frozenset({"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})


@dataclass(frozen=True, eq=False)
class Trace(Questions):
    """One forward pass: its calls in execution order, the values they passed, and what must be said.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> trace.root.type, trace.root.outputs[0].shape
    ('Linear', (1, 3))
    """

    model: str
    calls: tuple[Call, ...]
    values: tuple[Value, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)  # every registered path → class name
    notes: tuple[Note, ...] = ()
    started: str = ""  # ISO 8601, UTC
    duration: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    explain: Explains | Explanation | None = field(default=None, repr=False)
    _output: Any = field(default=NO_OUTPUT, repr=False)
    data: Data | None = field(default=None, repr=False)
    folder: Path | None = field(default=None, repr=False)
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # what queries derived, made once

    def __post_init__(self) -> None:
        children: list[list[Call]] = [[] for _ in self.calls]
        notes: dict[int, list[Note]] = {}
        for call in self.calls:
            if call.parent_index is not None:
                children[call.parent_index].append(call)
        for note in self.notes:
            if note.call is not None:
                notes.setdefault(note.call, []).append(note)
        for call in self.calls:
            call._links.explain, call._links.count = self.explain, len(self.calls)
            call._links.children = tuple(children[call.index])
            call._links.parent = None if call.parent_index is None else self.calls[call.parent_index]
            call._links.notes = tuple(notes.get(call.index, ()))

    def __del__(self) -> None:
        """Calls hold each other, and the model through their graphs: they go now, not when Python looks for circles."""
        if "calls" in vars(self) and not are_held(vars(self), [call._links for call in self.calls]):
            for call in self.calls:
                call._links.clear()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _COMPARED)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        """A copy or a pickle holds the data of the run, graphs included, and none of its live objects."""
        data = self.data if getattr(self.data, "lasting", False) else None
        return vars(self) | {"explain": self.explanation, "_output": NO_OUTPUT, "data": data, "cache": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        calls = tuple(replace(call) for call in state["calls"])  # a shallow copy came with those of the original
        vars(self).update(state, calls=calls)
        self.__post_init__()

    @property
    def explanation(self) -> Explanation | None:
        """The graphs of the run; they are made at the first question about them. ``None`` with ``graph=False``."""
        return _explanation(self.explain, len(self.calls))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The distinct graphs of the run's bodies."""
        return () if self.explanation is None else self.explanation.graphs

    @property
    def root(self) -> Call:
        """The call of the model itself."""
        return self.calls[0]

    @property
    def error(self) -> Failure | None:
        """What the run raised, or ``None``."""
        return self.root.error

    @property
    def output(self) -> Any:
        """The very object the model returned; a loaded trace has none and says so."""
        if self._output is NO_OUTPUT:
            raise UsageError(
                "this trace holds no output: it was loaded from disk, or the model raised. "
                "What was recorded of it is in trace.root.outputs"
            )
        return self._output

    @property
    def never_called(self) -> tuple[str, ...]:
        """Paths of registered modules that the run did not call; plain containers cannot be called."""
        called = {call.path for call in self.calls}
        return tuple(path for path, type in self.modules.items() if path not in called and type not in _CONTAINERS)

    # One-line conveniences: they call the door late, so that data needs nothing above it.

    def find(self, path: str | None = None, **conditions: Any) -> list[Call]:
        """Calls by path glob, class name, dtype, shape, status, source and predicate: see ``query.find``."""
        from fxdebug import api

        return api.find(self, path, **conditions)

    def export(self, path: str | Path, **options: Any) -> Path:
        """Write the trace as ``.dot .svg .png .pdf .graphml .json .html .txt``, by suffix: see ``api.export``."""
        from fxdebug import api

        return api.export(self, path, **options)

    def save(self, folder: str | Path) -> Path:
        """Write the run to a folder and return it: see ``api.save``."""
        from fxdebug import api

        return api.save(self, folder)

    def tensor(self, value: Value) -> Any:
        """The saved data of a value as a ``torch.Tensor``: see ``api.tensor``."""
        from fxdebug import api

        return api.tensor(self, value)

    def __str__(self) -> str:
        from fxdebug import api

        return api.text(self)

    def _repr_html_(self) -> str:
        from fxdebug import api

        return api.html(self)


_COMPARED = (
    *(f.name for f in fields(Trace) if f.name not in {"_output", "cache", "data", "explain", "folder"}),
    "explanation",
)


def replaced(trace: Trace, **changes: Any) -> Trace:
    """A copy of the trace with some fields changed; its calls are copied too, so both stay whole."""
    changes.setdefault("calls", tuple(replace(call) for call in trace.calls))
    return replace(trace, **changes)
