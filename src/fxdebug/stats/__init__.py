"""A tensor in, `Stats` out, near memory speed."""

from __future__ import annotations

from fxdebug.stats.accelerator import DeviceBatch, is_elsewhere
from fxdebug.stats.cpu_sums import BLOCK, array_of, is_freed, marking_of, memory_of
from fxdebug.stats.measure import Unmeasurable, fine_std, finished, measure, measure_at_once, measure_later

__all__ = [
    "BLOCK",
    "Elsewhere",
    "Unmeasurable",
    "array_of",
    "fine_std",
    "finished",
    "is_elsewhere",
    "is_freed",
    "marking_of",
    "measure",
    "measure_at_once",
    "measure_later",
    "memory_of",
]
