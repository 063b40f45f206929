"""The sums over the slices of a weight, packed as text: inert facts by which weights in two layouts are compared.

A fused weight holds several in one, a port may permute, transpose or split it. Its statistics stay the same then, and
so do the sums of its rows, which only change places.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterable, Sequence

LONGEST = 4096  # a dimension that is longer has no sums: they would take more room than the rest of the record


def summed_dimensions(shape: Sequence[int]) -> list[int]:
    """Return the dimensions whose slices are summed: those of more than one element that are not too long.

    >>> summed_dimensions((64, 32, 1, 1)), summed_dimensions((4096, 4097, 2)), summed_dimensions(())
    ([0, 1], [0, 2], [])
    """
    return [dimension for dimension, size in enumerate(shape) if 1 < size <= LONGEST]


def packed(sums: Iterable[bytes]) -> str | None:
    """Return sums as text, ``None`` where there are none; each is float32 in little-endian order."""
    joined = b"".join(sums)
    return base64.b64encode(joined).decode("ascii") if joined else None


def unpacked(text: str | None, shape: Sequence[int]) -> dict[int, tuple[float, ...]]:
    """Return the sums of slices by dimension; empty where there are none, or where the text does not fit the shape.

    >>> text = packed([array("f", [1.0, 5.0]).tobytes(), array("f", [2.0, 2.0, 2.0]).tobytes()])
    >>> unpacked(text, (2, 3)), unpacked(text, (2, 2)), unpacked("?", (2, 3)), unpacked(None, (2, 3))
    ({0: (1.0, 5.0), 1: (2.0, 2.0, 2.0)}, {}, {}, {})
    """
    try:
        numbers = array("f", base64.b64decode(text or "", validate=True))
    except ValueError:
        return {}
    if sys.byteorder == "big":
        numbers.byteswap()
    dimensions = summed_dimensions(shape)
    if not numbers or len(numbers) != sum(shape[dimension] for dimension in dimensions):
        return {}
    sums, start = {}, 0
    for dimension in dimensions:
        sums[dimension] = tuple(numbers[start : start + shape[dimension]])
        start += shape[dimension]
    return sums
