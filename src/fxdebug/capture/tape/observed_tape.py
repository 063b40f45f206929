"""A tape that somebody looks at while it is written: every operation, with what it was given by then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from threading import get_ident
from typing import Any, Protocol

from torch import Tensor

from fxdebug.capture.recorder.frame import Frame, failure
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import METADATA
from fxdebug.capture.tape.source_line import Line
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import Value
from fxdebug.errors import FxDebugError, first_line


class Watcher(Protocol):
    """Hears of operations and calls; what it raises passes through the model to whoever called it.

    ``error`` is what it raised, told again when the run is over: a model may have caught it.
    """

    error: BaseException | None

    def begins(self, frames: list[Frame]) -> None:
        """A recording begins; ``frames`` will have its calls."""

    def ran(self, body: CallTape, entry: TapeEntry, given: list[Value], result: Any) -> None:
        """An operation ran; ``given`` are the values of its tensors before it did."""

    def left(self, frame: Frame, output: Any) -> None:
        """A call returned."""


def told_of_call(watcher: Watcher, frame: Frame, output: Any, say: Callable[[str], None]) -> None:
    """Tell a watcher that a call returned; what it raises on purpose is the call's exception."""
    try:
        watcher.left(frame, output)
    except FxDebugError as error:
        frame.raised, frame.error = id(error), failure(error, here=True)
        raise
    except Exception as error:  # the debugger never breaks the debugged
        say(f"what it returned was not looked at: {type(error).__name__}: {first_line(error)}")


class WatchedTape(Tape):
    """Tells ``watcher`` of every operation it notes."""

    def __init__(
        self,
        values: ValueTable,
        stacks: dict[int, list[CallTape]],
        lines: dict[tuple[int, int], Line],
        say: Callable[[str], None],
        watcher: Watcher,
    ) -> None:
        super().__init__(values, stacks, lines)
        self._say = say
        self._watcher = watcher

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        bodies = self._stacks.get(get_ident())
        if not bodies or func in METADATA:
            return func(*args, **(kwargs or {}))
        entries = bodies[-1].entries
        count = len(entries)
        given: list[Value] = []
        with contextlib.suppress(Exception), untracked():  # an argument that cannot be looked at is passed on as it is
            for tensor in tensors_in((*args, *(kwargs or {}).values())):
                given.append(self.values.value_of(tensor, keep=False))
        result = super().__torch_function__(func, types, args, kwargs)
        if len(entries) > count:
            try:
                self._watcher.ran(bodies[-1], entries[-1], given, result)
            except FxDebugError:
                raise
            except Exception as error:  # the debugger never breaks the debugged
                self._say(f"an operation was not looked at: {type(error).__name__}: {first_line(error)}")
        return result


def tensors_in(things: Iterable[Any], depth: int = 4) -> Iterator[Tensor]:
    """The tensors among arguments, in plain containers too."""
    for thing in things:
        kind = type(thing)
        if issubclass(kind, Tensor):
            yield thing
        elif depth and issubclass(kind, (list, tuple, dict)):  # iterated as those do, whatever the subclass says
            inside = list.__iter__(thing) if issubclass(kind, list) else None
            inside = tuple.__iter__(thing) if issubclass(kind, tuple) else inside
            inside = iter(dict.values(thing)) if inside is None else inside
            yield from tensors_in(islice(inside, 1000), depth - 1)
