"""The time that recording takes in one thread. It is subtracted from the durations of the calls that are open."""

from __future__ import annotations


class OwnTime:
    """Seconds spent in fxdebug's own code in one thread, since the recording began."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0
