"""Histograms, and names of distributions: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fxdebug.brief import brief

DistributionName: TypeAlias = Literal["uniform", "normal", "constant", "other"]


@brief
@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of the finite elements between edges; NaN and infinite elements are counted apart.

    ``edges`` has one number more than ``counts``; the last bin includes its upper edge, as in ``numpy.histogram``.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    nan: int = 0
    inf: int = 0
