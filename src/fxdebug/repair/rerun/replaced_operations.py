"""Operations that are replaced during a run, each by a function of its arguments and its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import node_name, op_name
from fxdebug.capture.torch_state import internals
from fxdebug.data.graphs import Op, refs_in
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Item, Value, leaves

Place: TypeAlias = tuple[int, str]
"""The index of a call, and the name of an operation in its graph: ``(3, "mul_1")``."""

Counted: TypeAlias = tuple[int, str, int]
"""The index of a call, an operation, and how many of its name ran in that call before it."""

_REFLECTED = {"rsub": "sub", "rdiv": "div", "rtruediv": "div", "truediv": "div", "rpow": "pow", "radd": "add"}
_REFLECTED |= {"rmul": "mul", "rmatmul": "matmul", "rmod": "remainder", "rfloordiv": "floordiv"}


class Ran(NamedTuple):
    """An operation that ran: its function, its arguments and its result."""

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any


def name_of(ran: Ran) -> str:
    """Return the name of the function of an operation."""
    return str(getattr(ran.function, "__name__", ""))


def is_inplace(ran: Ran) -> bool:
    """Does an operation write to what it is given? Then it cannot be computed a second time."""
    name = name_of(ran)
    return any(ran.result is x for x in ran.args) or (name.endswith("_") and not name.endswith("__"))


def tensors_in(thing: Any) -> list[Tensor]:
    """Return the tensors in containers."""
    return [leaf for leaf in internals.tree_leaves(thing) if isinstance(leaf, Tensor)]


class Keeper(Protocol):
    """Keep the operations of a run, and the tensors that the run returns."""

    def keep(self, place: Place | None, ran: Ran) -> None:
        """Keep an operation that ran."""

    def end(self, returned: Any) -> None:
        """Keep what the run returns."""


class ReplacedOperations:
    """A stepper that replaces the results of operations; ``made`` are the places where it did.

    With ``kept``, all operations of the run are kept there as they ran.

    >>> import torch
    >>> from fxdebug.api.run_model import run_and_store
    >>> halved = ReplacedOperations({(1, "relu"): lambda ran: ran.result / 2})
    >>> model = torch.nn.Sequential(torch.nn.ReLU())
    >>> run = run_and_store(model, torch.ones(2), None, values="tensors", stepper=halved)
    >>> run.output.tolist(), halved.made
    ([0.5, 0.5], {(1, 'relu')})
    """

    def __init__(self, changes: Mapping[Place, Callable[[Ran], Any]], kept: Keeper | None = None) -> None:
        self.made: set[Place] = set()
        self.changes = changes
        self._kept = kept
        self._calls = {call for call, _ in changes}
        self._counts: dict[Place, int] = {}
        self._given: tuple[Any, Any, Any] = (None, (), {})
        self._counted: dict[Counted, Place] = {}  # which places some operations have, as far as a trace says so
        self._is_placed = False  # by a trace
        self._before: dict[Counted | Place, Callable[[Ran], Any]] = {}

    def as_in(self, trace: TraceData) -> ReplacedOperations:
        """Return the same for places that are named as in a trace.

        A graph that was traced symbolically counts the operations on Python's numbers, too: of ``x[: n + 1] + y`` the
        sum of two tensors is ``add_1`` there.
        """
        if self._is_placed:
            return self  # it is known of which trace they are
        found = ReplacedOperations(self.changes, self._kept)
        found.made, found._before, found._calls, found._is_placed = self.made, self._before, self._calls, True
        calls = self._calls if self._kept is None else range(len(trace.calls))
        known = _counted_places(trace, calls)
        found._counted = {counted: place for counted, place in known if self._kept is not None or place in self.changes}
        return found

    def behind(self, other: ReplacedOperations) -> ReplacedOperations:
        """Return the same with the results of another one replaced before; these are none of ``made``."""
        found = ReplacedOperations(self.changes, self._kept)
        found.made, found._counted, found._is_placed = self.made, self._counted, self._is_placed
        found._calls = self._calls | other._calls
        counted: dict[Place, Counted] = {place: counted for counted, place in other._counted.items()}
        own = {counted.get(place, place): change for place, change in other.changes.items()}
        found._before = {**self._before, **other._before, **own}
        return found

    def begin(self, recorder: Recorder) -> None:
        """Begin with a recording."""
        self._recorder = recorder

    def tensors_of(self, values: Sequence[Value]) -> list[Tensor | None]:
        """Return the tensors of the recording that have these values now; ``None`` for one of which that is not so."""
        return self._recorder.values.tensors_of(values)

    def before_call(
        self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Let a call begin."""
        return args, kwargs

    def after_call(self, frame: Frame, output: Any) -> Any:
        """Let a call return."""
        if self._kept is not None and frame.index == 0:
            self._kept.end(output)
        return output

    def failed_call(self, frame: Frame, error: BaseException) -> None:
        """Let an exception of a call pass."""

    def before_op(self, function: Any, args: Any, kwargs: Any) -> None:
        """Keep what an operation is given until it returns."""
        self._given = function, args, kwargs

    def after_op(self, call_tape: CallTape, entry: TapeEntry, result: Any) -> Any:
        """Replace the result of an operation."""
        if call_tape.index not in self._calls and self._kept is None:
            return result
        index, name = call_tape.index, op_name(entry.what)
        counted = index, _without_side(name), self._count(index, f"{_without_side(name)}()")
        named = index, node_name(name, self._count(index, name))
        place: Place | None = self._counted.get(counted, named)
        if counted not in self._counted and named in self._counted.values():
            place = None  # the trace has that name for another one
        before = self._before.get(counted) or self._before.get(named)
        function, args, kwargs = self._given
        with self._recorder.unwatched():
            ran = Ran(function, tuple(args), dict(kwargs or {}), result)
            ran = ran if before is None else ran._replace(result=before(ran))
            ran = ran if place is None else ran._replace(result=self.replaced(place, ran))
            if self._kept is not None:
                self._kept.keep(place, ran)
            return ran.result

    def _count(self, call: int, name: str) -> int:
        """Return how many operations of a name ran in a call before, and count one more."""
        count = self._counts.get((call, name), 0)
        self._counts[call, name] = count + 1
        return count

    def replaced(self, place: Place, ran: Ran) -> Any:
        """Return the result of an operation that ran: its own, or the one in its place."""
        change = self.changes.get(place)
        if change is None:
            return ran.result
        new = change(ran)
        self.made.add(place)
        return new


def _without_side(name: str) -> str:
    """Return an operation's name, whichever of its operands is the tensor: ``1 - x`` and ``x - 1`` are both ``sub``."""
    return _REFLECTED.get(name, name)


def _counted_places(trace: TraceData, calls: Collection[int]) -> Iterator[tuple[Counted, Place]]:
    """Yield the operations of some calls that torch ran, counted, with their places in the graphs of a trace."""
    known = trace.call_graphs
    if known is None:
        return
    for index in calls:
        body = known.bodies[index] if index < len(known.bodies) else None
        if body is None or body.graph is None:
            continue
        counts: dict[str, int] = {}
        results: dict[str, Item] = {}
        for op, result in zip(known.graphs[body.graph].ops, body.results):
            results[op.name] = result
            if op.kind in ("call_function", "call_method") and _is_of_torch(op, result, results):
                name = _without_side(op.op)
                yield (index, name, counts.get(name, 0)), (index, op.name)
                counts[name] = counts.get(name, 0) + 1


def _is_of_torch(op: Op, result: Item, results: Mapping[str, Item]) -> bool:
    """Did torch run it, rather than Python alone, on numbers or on a tuple of results?"""
    given = [results.get(node) for operand in (*op.args, *op.kwargs.values()) for _, node in refs_in(operand)]
    if op.op == "getitem":
        return bool(given) and isinstance(given[0], Value)
    return any(True for item in (result, *given) for _ in leaves(item))
