"""What one forward pass left behind: plain, frozen data without torch in it.

A :class:`TraceData` holds every :class:`~fxdebug.data.calls.Call` of a module and every
:class:`~fxdebug.data.values.Value` that went in or out of one. Everything here is equal by value and survives
``save`` and ``load``; only ``output``, the live object the model returned, and where the run is stored do not take
part. People get it as :class:`fxdebug.Trace`, which adds methods; every floor below the door takes this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fxdebug.data.calls import Call, CallTree, Explains, Failure, Note, Parameter, explanation_of
from fxdebug.data.graphs import Graph, RunGraphs
from fxdebug.data.values import Value
from fxdebug.errors import LoadError, UsageError

if TYPE_CHECKING:
    import torch


class Data(Protocol):
    """Where a trace finds what was kept of the run besides numbers (see ``store``)."""

    def tensor(self, value: Value) -> torch.Tensor: ...

    def lines(self, value: Value) -> list[str] | None: ...

    def printed(self, value: Value) -> tuple[str, str, str, str] | None: ...


class _NoOutput:
    def __repr__(self) -> str:
        return "no output: this trace was loaded or its run raised"

    def __reduce__(self) -> str:
        return "NO_OUTPUT"  # there is one


NO_OUTPUT = _NoOutput()
_CONTAINERS = frozenset({"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})


@dataclass(frozen=True, eq=False)
class TraceData:
    """One forward pass: its calls in execution order, the values they passed, and what must be said."""

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
    explain: Explains | RunGraphs | None = field(default=None, repr=False)
    _output: Any = field(default=NO_OUTPUT, repr=False)
    data: Data | None = field(default=None, repr=False)
    folder: Path | None = field(default=None, repr=False)
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # what queries derived, made once

    def __post_init__(self) -> None:
        CallTree(self.calls, self.notes, self.explain)  # the calls hold it

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TraceData):
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
    def explanation(self) -> RunGraphs | None:
        """The graphs of the run; they are made at the first question about them. ``None`` with ``graph=False``."""
        return explanation_of(self.explain, len(self.calls))

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

    def tensor(self, value: Value) -> torch.Tensor:
        """The data of a value, of the value's dtype and shape.

        Raises ``LoadError`` if the run did not keep it (``values="tensors"`` does).

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]), values="tensors")
        >>> trace.tensor(trace.root.outputs[0])
        tensor([0., 2.])
        """
        if value.saved is None or self.data is None:
            why = "run with values='tensors'"
            if self.settings.get("values") == "tensors":
                why = "only what goes into and comes out of module calls is kept, and what has no data (meta) is not"
            raise LoadError(f"the data of value {value.number} ({value.label}) was not kept: {why}")
        return self.data.tensor(value)

    @property
    def never_called(self) -> tuple[str, ...]:
        """Paths of registered modules that the run did not call; plain containers cannot be called."""
        called = {call.path for call in self.calls}
        return tuple(path for path, type in self.modules.items() if path not in called and type not in _CONTAINERS)


_COMPARED = (
    *(f.name for f in fields(TraceData) if f.name not in {"_output", "cache", "data", "explain", "folder"}),
    "explanation",
)
_T = TypeVar("_T", bound=TraceData)


def replaced(trace: _T, **changes: Any) -> _T:
    """A copy of the trace with some fields changed; its calls are copied too, so both stay whole."""
    changes.setdefault("calls", tuple(replace(call) for call in trace.calls))
    return replace(trace, **changes)
