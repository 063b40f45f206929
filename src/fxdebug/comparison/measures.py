"""The distance of two values that should be equal, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

Basis: TypeAlias = Literal["statistics", "sample", "tensors"]  # the data behind a measure, the weakest first
Unlike: TypeAlias = Literal["", "shape", "dtype", "nonfinite", "unknown", "number", "missing", "extra"]

BASES: tuple[Basis, ...] = get_args(Basis)
TENSORS: Final = "tensors"
SAMPLE: Final = "sample"
STATISTICS: Final = "statistics"


@dataclass(frozen=True, slots=True)
class Measures:
    """The distance of ``b`` from ``a``. A measure is ``None`` where it cannot be known without the elements.

    ``error`` decides verdicts: the larger of the root mean square of the differences, relative to that of ``a``, and
    of the largest difference, relative to the largest element. For integers and booleans it is the share of elements
    that differ; with ``basis="statistics"`` a lower bound from mean, deviation and extremes. ``relative`` is the root
    mean square alone, ``sqnr`` the same in decibels (signal to quantisation noise, 20·log10 of its inverse).
    ``beyond`` is the share of elements that differ by more than the dtype's tolerance of the largest element.
    ``ulp`` is the largest distance in representable numbers of the dtype, for equal dtypes. ``what`` says what cannot
    be compared: ``shape``, ``dtype``, ``nonfinite``.
    """

    error: float
    basis: Basis = STATISTICS
    what: Unlike = ""
    max_abs: float | None = None
    mean_abs: float | None = None
    relative: float | None = None
    cosine: float | None = None
    sqnr: float | None = None
    beyond: float | None = None
    ulp: int | None = None


EQUAL = Measures(0.0)
