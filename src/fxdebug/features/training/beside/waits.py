"""The time in which a training waits for the next batch of a DataLoader."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

from fxdebug.capture.probe import internals, patch


class Waits:
    """Seconds that a training's thread spends in the next batch of a DataLoader, from one :meth:`take` to the next.

    >>> from torch.utils.data import DataLoader
    >>> waits = Waits()
    >>> waits.put()
    >>> [batch.tolist() for batch in DataLoader(range(4), batch_size=2)]
    [[0, 1], [2, 3]]
    >>> waits.remove()
    >>> waits.take() > 0, waits.take()
    (True, None)
    """

    def __init__(self) -> None:
        self._thread = get_ident()
        self._seconds: float | None = None
        self._is_inside = False  # a loader that reads another one's batches

    def put(self) -> None:
        """Begin to look."""
        _next.begin(self)

    def remove(self) -> None:
        """Look no more."""
        _next.end(self)

    def take(self) -> float | None:
        """Return the seconds since the last time, ``None`` where no batch was asked for."""
        seconds, self._seconds = self._seconds, None
        return seconds

    def enter(self) -> bool:
        """Tell whether a wait of this training begins."""
        if self._is_inside or get_ident() != self._thread:
            return False
        self._is_inside = True
        return True

    def leave(self, seconds: float) -> None:
        """Count a wait that has ended."""
        self._is_inside = False
        self._seconds = seconds + (self._seconds or 0.0)


def _timed(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def following(self: Any) -> Any:
        begun = [one for one in _next.users if one.enter()]
        since = time.perf_counter()
        try:
            return original(self)
        finally:
            for one in begun:
                one.leave(time.perf_counter() - since)

    return following


_next = patch.SharedPatch(
    patch.Attribute(
        "torch.utils.data.dataloader._BaseDataLoaderIter.__next__", internals.DataLoaderIter, "__next__", _timed
    )
)
