"""Facts about the weights of a model, and about the difference of two checkpoints: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fxdebug.brief import brief
from fxdebug.data.measured.histograms import DistributionName, Histogram
from fxdebug.data.values import Stats

Shape: TypeAlias = tuple[int, ...]


@brief
@dataclass(frozen=True, slots=True)
class Spectrum:
    """The largest singular value of a matrix, and its stable rank: the squared Frobenius norm over that value squared.

    Kernels of convolutions are matrices with a row for each output channel.
    """

    norm: float
    stable_rank: float


@brief
@dataclass(frozen=True, slots=True)
class WeightFacts:
    """One parameter or buffer: whose it is, its elements, its spectrum, and units without weights.

    ``names`` are all names it is registered under. ``fan_in`` and ``fan_out`` are numbers of connections, where it is
    the weight of a layer. ``zero_outputs`` are units whose weights are all 0, ``zero_inputs`` inputs that no unit
    reads. ``distribution`` is that of the elements by a test of Kolmogorov and Smirnov at 1 %. ``ordered`` tells
    whether neighbours in a row or column correlate, as in a table of positions, or rows are of several sizes; of
    weights that were drawn at once, neither holds.
    """

    names: tuple[str, ...]
    path: str
    type: str
    kind: str
    shape: Shape
    dtype: str
    requires_grad: bool
    stats: Stats
    histogram: Histogram
    distribution: DistributionName
    spectrum: Spectrum | None = None
    fan_in: int | None = None
    fan_out: int | None = None
    zero_outputs: tuple[int, ...] = ()
    zero_inputs: tuple[int, ...] = ()
    ordered: bool = False

    @property
    def name(self) -> str:
        """The first name it is registered under."""
        return self.names[0]


@brief
@dataclass(frozen=True, slots=True)
class UnreadWeight:
    """A weight without facts: it has no data (meta, not drawn yet), no arithmetic, or is packed by quantisation.

    ``elements`` is ``None`` where their number is not known.
    """

    name: str
    kind: str
    elements: int | None
    requires_grad: bool = False


@brief
@dataclass(frozen=True, slots=True)
class WeightChange:
    """One weight in two checkpoints; numbers are ``None`` where it is in one alone or its shapes differ.

    ``norm`` is the 2-norm in the first one, ``norm_b`` that in the second, ``change`` that of the difference;
    ``largest`` the largest difference of an element; ``cosine`` the cosine of the angle between both; ``differing``
    the number of elements that differ.
    """

    name: str
    shape_a: Shape | None
    shape_b: Shape | None
    dtype_a: str | None
    dtype_b: str | None
    norm: float | None = None
    norm_b: float | None = None
    change: float | None = None
    largest: float | None = None
    cosine: float | None = None
    differing: int | None = None
