"""A call that is open: what a listener is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fxdebug.capture.recorder.frame import Frame, failure
from fxdebug.capture.tape.observed_tape import OpObserver
from fxdebug.errors import FxDebugError, first_line


class Listener(Protocol):
    """Hears of calls as they begin and end: a journal on disk, a progress line."""

    def began(self, frame: Frame) -> None: ...

    def ended(self, frame: Frame) -> None: ...


class Open(list[Frame]):
    """The calls open in one thread, outermost first, and what else is different in each thread."""

    __slots__ = ("lost", "subject")

    def __init__(self) -> None:
        super().__init__()
        self.subject: Frame | None = None  # the call at hand, while it is looked at
        self.lost = 0.0  # seconds spent in here, taken out of durations


class RunObserver(OpObserver, Protocol):
    """Hears of operations and calls; an ``FxDebugError`` that it raises passes through the model.

    ``error`` is what it raised, raised again when the run is over: a model may have caught it.
    """

    error: BaseException | None

    def begins(self, frames: list[Frame]) -> None:
        """A recording begins; ``frames`` will have its calls."""

    def left(self, frame: Frame, output: Any) -> None:
        """A call returned."""


def report_return(observer: RunObserver, frame: Frame, output: Any, say: Callable[[str], None]) -> None:
    """Tell an observer that a call returned; an ``FxDebugError`` that it raises is the call's exception."""
    try:
        observer.left(frame, output)
    except FxDebugError as error:
        frame.raised, frame.error = id(error), failure(error, here=True)
        raise
    except Exception as error:  # the debugger never breaks the debugged
        say(f"what it returned was not looked at: {type(error).__name__}: {first_line(error)}")
