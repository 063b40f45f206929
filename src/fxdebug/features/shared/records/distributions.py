"""The distribution of the elements of a tensor, or of the same tensor over several runs: moments, quantiles, counts."""

from __future__ import annotations

from dataclasses import dataclass

from fxdebug.brief import brief

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@brief
@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of some numbers; everything but the counts is over the finite ones.

    ``std`` divides by n, as ``numpy.std`` does; ``skew`` and ``kurtosis`` are the third and fourth standardised
    moments, the latter minus 3. ``quantiles`` are those of ``QUANTILES``. ``counts`` are the numbers in each bin:
    ``counts[i]`` from ``edges[i]`` to ``edges[i + 1]``, as in ``numpy.histogram``. ``exact`` tells whether the
    quantiles are those of the numbers themselves, or of bins of a 4096th of their range. ``None``: there is no finite
    number, or they are all alike and have no shape.
    """

    count: int
    nan: int
    posinf: int
    neginf: int
    zeros: int
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    rms: float | None = None
    skew: float | None = None
    kurtosis: float | None = None
    quantiles: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    exact: bool = True

    @property
    def finite(self) -> int:
        """The number of finite elements."""
        return self.count - self.nan - self.posinf - self.neginf

    @property
    def absmax(self) -> float | None:
        """The largest absolute value."""
        return None if self.min is None or self.max is None else max(abs(self.min), abs(self.max))

    @property
    def median(self) -> float | None:
        """The median."""
        return self.quantiles[QUANTILES.index(0.5)] if self.quantiles else None
