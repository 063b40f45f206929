"""A tape that shows each operation to an observer, with the values that its operands had before it ran."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from fxdebug.capture.source.source_line import Line
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import METADATA
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.named_tensors import tensors_in
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import Value
from fxdebug.errors import FxDebugError, first_line


class OpObserver(Protocol):
    """Looks at operations as they run; an ``FxDebugError`` that it raises passes through the model to its caller."""

    def after_op(self, call_tape: CallTape, entry: TapeEntry, operands: list[Value], result: Any) -> None:
        """Look at an operation that ran; ``operands`` are the values of its tensors before it did."""


class ObservedTape(Tape):
    """A tape that shows every operation to ``observer`` right after noting it."""

    def __init__(
        self,
        values: ValueTable,
        lines: dict[tuple[int, int], Line],
        note: Callable[[str], None],
        observer: OpObserver,
    ) -> None:
        super().__init__(values, lines)
        self._note_on_call = note
        self._observer = observer

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        bodies = self.stacks.get(get_ident())
        if not bodies or func in METADATA:
            return func(*args, **(kwargs or {}))
        entries = bodies[-1].entries
        count = len(entries)
        operands: list[Value] = []
        with contextlib.suppress(Exception), untracked():  # an argument that cannot be looked at is passed on as it is
            for tensor in tensors_in((*args, *(kwargs or {}).values())):
                operands.append(self.values.value_of(tensor, keep=False))
        result = super().__torch_function__(func, types, args, kwargs)
        if len(entries) > count:
            try:
                self._observer.after_op(bodies[-1], entries[-1], operands, result)
            except FxDebugError:
                raise
            except Exception as error:  # the debugger never breaks the debugged
                self._note_on_call(f"an operation was not looked at: {type(error).__name__}: {first_line(error)}")
        return result
