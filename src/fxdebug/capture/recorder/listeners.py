"""Protocols of the objects that follow a recording: listeners see its calls, a probe also judges its operations.

A stepper stands before and after each of them, and may change what goes in and what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fxdebug.capture.recorder.frame import Frame, failure
from fxdebug.capture.tape.observed_tape import OpObserver
from fxdebug.capture.tape.stepped_ops import OpStepper
from fxdebug.errors import FxDebugError, first_line

if TYPE_CHECKING:
    from fxdebug.capture.recorder.recorder import Recorder


class Listener(Protocol):
    """Follows calls as they begin and end: a journal on disk, a progress line."""

    def enter_call(self, frame: Frame) -> None:
        """Take notice of a call that begins."""

    def leave_call(self, frame: Frame) -> None:
        """Take notice of a call that returned or raised."""


class Probe(OpObserver, Protocol):
    """Looks at operations and calls of a run; an ``FxDebugError`` that it raises passes through the model.

    ``error`` is that error, kept until the run is over: the model may have caught it.
    """

    error: BaseException | None

    def begin(self, frames: list[Frame]) -> None:
        """Begin with a recording; ``frames`` is the list that its calls will be added to."""

    def after_call(self, frame: Frame, output: Any) -> None:
        """Look at a call that returned."""


class Stepper(OpStepper, Protocol):
    """Runs before and after each call and operation of a run, and may replace their arguments and results.

    What it raises passes through the model to the caller.
    """

    def begin(self, recorder: Recorder) -> None:
        """Begin with a recording."""

    def before_call(
        self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Look at a call that begins; return its arguments, or what takes the place of them."""

    def after_call(self, frame: Frame, output: Any) -> Any:
        """Look at a call that is about to return; return its output, or what takes the place of it."""

    def failed_call(self, frame: Frame, error: BaseException) -> None:
        """Look at a call that an exception is about to leave."""


def probe_call(probe: Probe, frame: Frame, output: Any, note: Callable[[str], None]) -> None:
    """Let a probe look at a call that returned; an ``FxDebugError`` that it raises becomes the call's error."""
    try:
        probe.after_call(frame, output)
    except FxDebugError as error:
        frame.exception_id, frame.error = id(error), failure(error, here=True)
        raise
    except Exception as error:  # the debugger never breaks the debugged
        note(f"what it returned was not looked at: {type(error).__name__}: {first_line(error)}")
