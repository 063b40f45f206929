"""A call that is open: what a listener is told of it."""

from __future__ import annotations

from typing import Protocol

from fxdebug.capture.recorder.frame import Frame


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
