"""Statistics of small tensors in the CPU's memory, measured together when the run is over.

Measured as they appear, each would find our code and numpy's pushed out of the caches by the model. Their bytes are
copied instead. Those of equal length become the rows of a matrix, and the numbers are those that each has alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from fxdebug.data.values import Stats
from fxdebug.stats.cpu_sums import FEW, REAL, memory_at, sums_of_rows
from fxdebug.stats.measure import stats_of_sums

ROOM = 1 << 22  # the most bytes that wait
OnStats = Callable[[Stats], None]
"""Receive the statistics of one tensor."""


def fits(dtype: torch.dtype, count: int) -> bool:
    """Can a tensor of ``count`` elements that lie together in the CPU's memory wait in a batch?"""
    return 0 < count <= FEW and dtype in REAL


class HostBatch:
    """The small tensors of one run that wait to be measured. Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[torch.dtype, int], list[tuple[bytes, OnStats]]] = {}
        self._used = 0

    def add(self, address: int, dtype: torch.dtype, count: int, on_stats: OnStats) -> None:
        """Add the elements at an address; :meth:`measure` calls ``on_stats`` with their statistics.

        They are copied, so later writes of the program do not matter.
        """
        copied: bytes = memory_at(address)[: count * dtype.itemsize]
        self._waiting.setdefault((dtype, count), []).append((copied, on_stats))
        self._used += len(copied)
        if self._used > ROOM:
            self.measure()

    def measure(self) -> None:
        """Measure all that wait. Call it where torch's modes and gradients are off."""
        waiting, self._waiting, self._used = self._waiting, {}, 0
        for (dtype, count), tensors in waiting.items():
            flats = torch.frombuffer(bytearray().join([copied for copied, _ in tensors]), dtype=dtype).view(-1, count)
            matrix = np.asarray(flats)
            for flat, sums, (_, on_stats) in zip(flats.unbind(), sums_of_rows(matrix), tensors):
                on_stats(stats_of_sums(flat, 1, sums))
