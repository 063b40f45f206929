"""``region`` and ``snapshot``: places that a program names, for the recordings of time and memory that are on."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from typing import Protocol


class Listener(Protocol):
    """A recording that is notified of regions and labels."""

    def region_begins(self, name: str) -> int:
        """Note that a region begins; return a number by which it ends."""

    def region_ends(self, number: int) -> None:
        """Note that a region ends, if it has not ended with the call that it began in."""

    def label(self, name: str) -> None:
        """Label the present moment."""


_listeners: tuple[Listener, ...] = ()  # another one takes its place: threads go through it
_lock = threading.Lock()


class Listening:
    """Tell a recording of regions and labels for the length of a block."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        global _listeners
        with _lock:
            _listeners = (*_listeners, self._listener)

    def __exit__(self, *error: object) -> None:
        global _listeners
        with _lock:
            _listeners = tuple([other for other in _listeners if other is not self._listener])


class region(ContextDecorator):
    """A named part of a forward: ``fxdebug.profile`` shows it in a separate row, below the call that it ran in.

    Use it as a block, as a decorator, or with :meth:`start` and :meth:`stop`. Regions nest. A region ends at the latest
    with the call in which it began. While nothing is profiled, a region does nothing.

    >>> import torch, fxdebug
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         with fxdebug.region("twice"):
    ...             return x + x
    >>> report = fxdebug.profile(Model(), torch.ones(2), repeats=2, peak=False)
    >>> sorted(row.call for row in report.rows)
    ['Model#0', 'Model/twice#0']
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: list[list[tuple[Listener, int]]] = []  # a function that it decorates may call itself

    def start(self) -> None:
        """Begin the region."""
        self._open.append([(listener, listener.region_begins(self.name)) for listener in _listeners])

    def stop(self) -> None:
        """End the region, and the regions that have begun in it; without effect where it has ended."""
        for listener, number in self._open.pop() if self._open else ():
            listener.region_ends(number)

    def __enter__(self) -> region:
        if _listeners:
            self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._open:
            self.stop()


def snapshot(label: str) -> None:
    """Label the present moment of a run whose memory ``fxdebug.memory`` follows; without effect in other runs.

    The report has a row for each label, with the bytes that were alive, and the picture has a line.

    >>> import torch, fxdebug
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         y = x + x
    ...         fxdebug.snapshot("after the sum")
    ...         return y
    >>> report = fxdebug.memory(Model(), torch.ones(4))
    >>> [(row.label, row.alive) for row in report.parts[1].rows]
    [('after the sum', 32)]
    """
    for listener in _listeners:
        listener.label(label)
