"""The record of one forward pass: plain, frozen data without torch in it.

A :class:`TraceData` holds every :class:`~fxdebug.data.calls.Call` of a module and every
:class:`~fxdebug.data.values.Value` that went in or out of one. Traces are compared by value and survive ``save`` and
``load``. Two things are neither compared nor saved: ``output``, the live object the model returned, and the place
where the run is stored. Users get a trace as :class:`fxdebug.Trace`, which adds methods; the packages below ``api``
take this class.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fxdebug.brief import brief
from fxdebug.data.calls import Call, CallTree, Failure, GraphSource, Note, Parameter, call_graphs_of
from fxdebug.data.graphs import Graph, RunGraphs
from fxdebug.data.measures import Taken, counted
from fxdebug.data.values import Value
from fxdebug.errors import LoadError, UsageError
from fxdebug.printable import printable

if TYPE_CHECKING:
    import torch


class ValueReader(Protocol):
    """Reads the data of values that a run kept: tensors, sampled lines, printed forms (see ``store``)."""

    def tensor(self, value: Value) -> torch.Tensor: ...

    def lines(self, value: Value) -> list[str] | None: ...

    def printed(self, value: Value) -> tuple[str, str, str, str] | None: ...


class _NoOutput:
    def __repr__(self) -> str:
        return "no output: this trace was loaded or its run raised"

    def __reduce__(self) -> str:
        return "NO_OUTPUT"  # a pickle refers to the one instance by name


NO_OUTPUT = _NoOutput()
_HOME_OF_CONTAINERS = "torch.nn.modules.container."
_CONTAINERS = frozenset({"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})


@brief
@dataclass(frozen=True, slots=True)
class ModuleClass:
    """A class of modules: its name and those of its bases, with their Python modules, and the paths of its modules."""

    names: tuple[str, ...]  # torch.nn.modules.linear.Linear, torch.nn.modules.module.Module
    paths: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TraceData:
    """One forward pass: its calls in execution order, the values they passed, and notes for the reader."""

    model: str
    calls: tuple[Call, ...]
    values: tuple[Value, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)  # every registered path → class name
    classes: tuple[ModuleClass, ...] = field(default=(), kw_only=True, repr=False)  # none in files of older versions
    notes: tuple[Note, ...] = ()
    started: str = ""  # ISO 8601, UTC
    duration: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    graph_source: GraphSource | RunGraphs | None = field(default=None, repr=False)
    _output: Any = field(default=NO_OUTPUT, repr=False)
    _class_of_call: Mapping[int, type] = field(default_factory=dict, repr=False, kw_only=True)  # only of a live run
    data: ValueReader | None = field(default=None, repr=False)
    folder: Path | None = field(default=None, repr=False)
    source_lines: Mapping[str, str] = field(default_factory=dict, repr=False)  # "file.py:12" → the text of the line
    taken: Mapping[str, Taken] = field(default_factory=dict, repr=False)  # measures that analyses took, by name
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # results of queries, computed once

    def __post_init__(self) -> None:
        tree = CallTree(self.calls, self.notes, self.graph_source)  # each call refers to it
        tree.facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name in _FACTS}

    def _take(self, other: TraceData) -> None:
        """Become the same run as another trace, whose calls have their tree already."""
        vars(self).update(vars(other), cache={})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TraceData):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _COMPARED)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        found = f"{counted(len(self.calls), 'call')}, {counted(len(self.values), 'value')}"
        raised = "" if not self.calls or self.error is None else f", raised {self.error.type}"
        return printable(f"<trace of {self.model}: {found}{raised}>")

    def __getstate__(self) -> dict[str, Any]:
        """Return the data of the run for a copy or a pickle, graphs included, without its live objects."""
        data = self.data if getattr(self.data, "lasting", False) else None
        return (
            vars(self)
            | {"graph_source": self.call_graphs, "_output": NO_OUTPUT, "_class_of_call": {}, "data": data, "cache": {}}
            | {"source_lines": self.named_lines()}
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        calls = tuple(replace(call) for call in state["calls"])  # a shallow copy has the calls of the original
        vars(self).update(state, calls=calls)
        self.__post_init__()

    @property
    def call_graphs(self) -> RunGraphs | None:
        """The graph of every call, built when first asked for; ``None`` with ``graph=False``."""
        return call_graphs_of(self.graph_source, len(self.calls))

    def named_lines(self) -> dict[str, str]:
        """Return the text of every source line that the trace names, if known."""
        if not self.source_lines:
            return {}
        names: dict[str | None, None] = {}
        for call in self.calls:
            names[call.source] = None
            if call.error is not None:
                names[call.error.source] = None
        for body in () if self.call_graphs is None else self.call_graphs.bodies:
            names.update(dict.fromkeys(body.sources))
            names.update(dict.fromkeys([guard.source for guard in body.guards]))
        lines = [(name, self.source_lines.get(name)) for name in names if name is not None]
        return {name: text for name, text in lines if text is not None}

    @property
    def explanation(self) -> RunGraphs | None:
        """The former name of :attr:`call_graphs`, for one release."""
        _warn_renamed("explanation", "call_graphs")
        return self.call_graphs

    @property
    def explain(self) -> GraphSource | RunGraphs | None:
        """The former name of :attr:`graph_source`, for one release."""
        _warn_renamed("explain", "graph_source")
        return self.graph_source

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The distinct graphs of the run; calls that ran the same operations share one."""
        return () if self.call_graphs is None else self.call_graphs.graphs

    @property
    def root(self) -> Call:
        """The call of the model itself."""
        return self.calls[0]

    @property
    def error(self) -> Failure | None:
        """The exception that the run raised, or ``None``."""
        return self.root.error

    @property
    def output(self) -> Any:
        """The object that the model returned; raises ``UsageError`` for a trace that was loaded or raised."""
        if self._output is NO_OUTPUT:
            raise UsageError(
                "this trace holds no output: it was loaded from disk, or the model raised. "
                "Its shapes and statistics are in trace.root.outputs"
            )
        return self._output

    def tensor(self, value: Value) -> torch.Tensor:
        """Return the data of a value, with its dtype and shape.

        Raises ``LoadError`` if the run did not keep it; ``values="tensors"`` keeps the data.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]), values="tensors")
        >>> trace.tensor(trace.root.outputs[0])
        tensor([0., 2.])
        """
        if value.saved is None or self.data is None:
            why = "run with values='tensors' to keep it"
            if self.settings.get("values") == "tensors":
                why = "only inputs and outputs of module calls are kept, and meta tensors have no data"
            raise LoadError(f"the data of value {value.number} ({value.label}) was not kept: {why}")
        return self.data.tensor(value)

    @property
    def never_called(self) -> tuple[str, ...]:
        """Paths of registered modules that the run did not call, without plain containers such as ModuleList."""
        called = {call.path for call in self.calls}
        kinds = {path: each.names[0] for each in self.classes for path in each.paths}
        plain = {path for path, kind in kinds.items() if kind.startswith(_HOME_OF_CONTAINERS)}
        return tuple(
            [
                path
                for path, type in self.modules.items()
                if path not in called and not (type in _CONTAINERS and (path in plain or path not in kinds))
            ]
        )


_NOT_COMPARED = {"_output", "_class_of_call", "cache", "data", "graph_source", "folder", "source_lines"}
_COMPARED = (
    *(f.name for f in fields(TraceData) if f.name not in _NOT_COMPARED),
    "call_graphs",
)
_FACTS = {f.name for f in fields(TraceData) if f.init} - {"calls", "_output"}
AnyTrace = TypeVar("AnyTrace", bound=TraceData)


def _warn_renamed(old: str, new: str) -> None:
    message = f"Trace.{old} is called Trace.{new} now; the old name goes with the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def trace_of(call: Call) -> TraceData:
    """Return the trace that a call belongs to, without the live output; the calls in it are copies.

    Raises ``UsageError`` for a call that belongs to none: a copy, or one that was unpickled.
    """
    tree = call._tree
    if tree is None:
        raise UsageError(f"call {call.id} belongs to no trace: take it from trace.calls or trace.find()")
    return TraceData(calls=tuple([replace(tree.call(index)) for index in range(len(tree))]), **tree.facts)


def replaced(trace: AnyTrace, **changes: Any) -> AnyTrace:
    """Return a copy of the trace with some fields changed; calls are copied too, since a call has one trace."""
    changes.setdefault("calls", tuple(replace(call) for call in trace.calls))
    return replace(trace, **changes)
