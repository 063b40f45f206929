"""A tape with an observer: it hears of every operation, with the values of its arguments before it ran."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from threading import get_ident
from typing import Any, Protocol

from torch import Tensor

from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import METADATA
from fxdebug.capture.tape.source_line import Line
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import Value
from fxdebug.errors import FxDebugError, first_line


class OpObserver(Protocol):
    """Hears of operations as they are noted. An ``FxDebugError`` that it raises passes through the model."""

    def ran(self, tape: CallTape, entry: TapeEntry, inputs: list[Value], result: Any) -> None:
        """Hear of an operation that ran; ``inputs`` are the values of its tensors before it did."""


class ObservedTape(Tape):
    """A tape that tells ``observer`` of every operation it notes."""

    def __init__(
        self,
        values: ValueTable,
        stacks: dict[int, list[CallTape]],
        lines: dict[tuple[int, int], Line],
        say: Callable[[str], None],
        observer: OpObserver,
    ) -> None:
        super().__init__(values, stacks, lines)
        self._say = say
        self._observer = observer

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tapes = self._stacks.get(get_ident())
        if not tapes or func in METADATA:
            return func(*args, **(kwargs or {}))
        entries = tapes[-1].entries
        count = len(entries)
        inputs: list[Value] = []
        with contextlib.suppress(Exception), untracked():  # an argument that cannot be looked at is passed on as it is
            for tensor in tensors_in((*args, *(kwargs or {}).values())):
                inputs.append(self.values.value_of(tensor, keep=False))
        result = super().__torch_function__(func, types, args, kwargs)
        if len(entries) > count:
            try:
                self._observer.ran(tapes[-1], entries[-1], inputs, result)
            except FxDebugError:
                raise
            except Exception as error:  # the debugger never breaks the debugged
                self._say(f"an operation was not looked at: {type(error).__name__}: {first_line(error)}")
        return result


def tensors_in(arguments: Iterable[Any], depth: int = 4) -> Iterator[Tensor]:
    """Yield the tensors among arguments, in plain containers too."""
    for argument in arguments:
        kind = type(argument)
        if issubclass(kind, Tensor):
            yield argument
        elif depth and issubclass(kind, (list, tuple, dict)):  # iterated as the base class does
            inside = list.__iter__(argument) if issubclass(kind, list) else None
            inside = tuple.__iter__(argument) if issubclass(kind, tuple) else inside
            inside = iter(dict.values(argument)) if inside is None else inside
            yield from tensors_in(islice(inside, 1000), depth - 1)
