"""Operations that are replaced during a run, each by a function of its arguments and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import node_name, op_name

Place: TypeAlias = tuple[int, str]
"""The index of a call, and the name of an operation in its graph: ``(3, "mul_1")``."""


class Ran(NamedTuple):
    """An operation that ran: its function, its arguments and its result."""

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any


class ReplacedOperations:
    """A stepper that replaces the results of operations; ``made`` are the places where it did.

    >>> import torch
    >>> from fxdebug.api.run_model import run_and_store
    >>> halved = ReplacedOperations({(1, "relu"): lambda ran: ran.result / 2})
    >>> model = torch.nn.Sequential(torch.nn.ReLU())
    >>> run = run_and_store(model, torch.ones(2), None, values="tensors", stepper=halved)
    >>> run.output.tolist(), halved.made
    ([0.5, 0.5], {(1, 'relu')})
    """

    def __init__(self, changes: Mapping[Place, Callable[[Ran], Any]]) -> None:
        self.made: set[Place] = set()
        self._changes = changes
        self._calls = {call for call, _ in changes}
        self._counts: dict[Place, int] = {}
        self._given: tuple[Any, Any, Any] = (None, (), {})

    def begin(self, recorder: Recorder) -> None:
        """Begin with a recording."""
        self._recorder = recorder

    def before_call(
        self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Let a call begin."""
        return args, kwargs

    def after_call(self, frame: Frame, output: Any) -> Any:
        """Let a call return."""
        return output

    def failed_call(self, frame: Frame, error: BaseException) -> None:
        """Let an exception of a call pass."""

    def before_op(self, function: Any, args: Any, kwargs: Any) -> None:
        """Keep what an operation is given until it returns."""
        self._given = function, args, kwargs

    def after_op(self, call_tape: CallTape, entry: TapeEntry, result: Any) -> Any:
        """Replace the result of an operation."""
        if call_tape.index not in self._calls:
            return result
        name = op_name(entry.what)
        count = self._counts.get((call_tape.index, name), 0)
        self._counts[call_tape.index, name] = count + 1
        place = call_tape.index, node_name(name, count)
        function, args, kwargs = self._given
        with self._recorder.unwatched():
            return self.replaced(place, Ran(function, tuple(args), dict(kwargs or {}), result))

    def replaced(self, place: Place, ran: Ran) -> Any:
        """Return the result of an operation that ran: its own, or the one in its place."""
        change = self._changes.get(place)
        if change is None:
            return ran.result
        new = change(ran)
        self.made.add(place)
        return new
