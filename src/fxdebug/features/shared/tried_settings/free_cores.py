"""The processor cores that other programs left to this process since a moment, where the system tells."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
IDLE = slice(3, 5)  # of the numbers in its first line: idle, and idle while a disk works


class FreeCores:
    """Counts from the moment when it is made."""

    def __init__(self) -> None:
        self._idle, self._own, self._wall = _idle(), time.process_time(), time.perf_counter()

    def count(self) -> float | None:
        """Return the cores that were idle or worked for this process, on average; ``None`` where no system tells."""
        idle, seconds = _idle(), time.perf_counter() - self._wall
        if idle is None or self._idle is None or seconds <= 0:
            return None
        return (idle - self._idle + time.process_time() - self._own) / seconds


def _idle() -> float | None:
    """Return the seconds that all cores have been idle."""
    try:
        numbers = STAT.read_text().partition("\n")[0].split()[1:]
        return sum(map(int, numbers[IDLE])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):  # another system
        return None
