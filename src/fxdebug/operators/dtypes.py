"""Every dtype of torch by name, with the limits of its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    """The kind of a dtype, and the limits of its numbers.

    ``kind`` is ``float``, ``complex``, ``integer``, ``bool``, ``quantized``, or ``storage`` for dtypes without
    arithmetic in torch: packed numbers, bare bits, exponents that scale others. ``bits`` is the size of an element,
    ``8 * torch.dtype.itemsize``. For floats, and for each part of complex numbers: ``eps`` is the distance from 1 to
    the next number, ``max`` the largest finite number, ``tiny`` the smallest normal one.
    """

    kind: str
    bits: int
    eps: float = 0.0
    max: float = 0.0
    tiny: float = 0.0

    @property
    def least(self) -> float:
        """The smallest number above 0 (subnormal)."""
        return self.eps * self.tiny


def _floating(kind: str, bits: int, digits: int, max: float, tiny: int) -> Dtype:
    return Dtype(kind, bits, 2.0**-digits, max, 2.0**tiny)


_HALF, _BFLOAT16, _SINGLE, _DOUBLE = 65504.0, 3.3895313892515355e38, 3.4028234663852886e38, 1.7976931348623157e308

DTYPES = {
    "float64": _floating("float", 64, 52, _DOUBLE, -1022),
    "float32": _floating("float", 32, 23, _SINGLE, -126),
    "float16": _floating("float", 16, 10, _HALF, -14),
    "bfloat16": _floating("float", 16, 7, _BFLOAT16, -126),
    "float8_e4m3fn": _floating("float", 8, 3, 448.0, -6),
    "float8_e4m3fnuz": _floating("float", 8, 3, 240.0, -7),
    "float8_e5m2": _floating("float", 8, 2, 57344.0, -14),
    "float8_e5m2fnuz": _floating("float", 8, 2, 57344.0, -15),  # torch.finfo has eps=0.125, but 1.25 comes after 1
    "complex128": _floating("complex", 128, 52, _DOUBLE, -1022),
    "complex64": _floating("complex", 64, 23, _SINGLE, -126),
    "complex32": _floating("complex", 32, 10, _HALF, -14),
    "bcomplex32": _floating("complex", 32, 7, _BFLOAT16, -126),  # from torch 2.14 on
    "bool": Dtype("bool", 8),
    **{f"int{bits}": Dtype("integer", bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": Dtype("integer", bits) for bits in (8, 16, 32, 64)},
    **{name: Dtype("quantized", 8) for name in ("qint8", "quint8", "quint4x2", "quint2x4")},
    "qint32": Dtype("quantized", 32),
    "float8_e8m0fnu": Dtype("storage", 8),
    "float4_e2m1fn_x2": Dtype("storage", 8),
    **{f"int{bits}": Dtype("storage", 8) for bits in range(1, 8)},
    **{f"uint{bits}": Dtype("storage", 8) for bits in range(1, 8)},
    **{name: Dtype("storage", 8) for name in ("bits1x8", "bits2x4", "bits4x2", "bits8")},
    "bits16": Dtype("storage", 16),
}

FLOATS = {name: dtype for name, dtype in DTYPES.items() if dtype.kind == "float"}


# The rounding step (eps) of every dtype that rounds, complex ones included.
EPS = {name: dtype.eps for name, dtype in DTYPES.items() if dtype.eps}


# From here on a narrow dtype does not have every integer: positions are rounded, and neighbours become one number.
LARGEST_INTEGER = {"bfloat16": 256, "float16": 2048}


def largest_of(dtype: str) -> float:
    """Return the largest finite number of a floating dtype; infinity for other dtypes.

    >>> largest_of("float16"), largest_of("int64")
    (65504.0, inf)
    """
    return FLOATS[dtype].max if dtype in FLOATS else math.inf


def number_kind(dtype: str) -> str:
    """Return ``float``, ``complex``, ``bool`` or ``int``: within a kind, numbers may be cast to one another.

    >>> number_kind("bfloat16"), number_kind("uint8"), number_kind("bool")
    ('float', 'int', 'bool')
    """
    return "float" if "float" in dtype else "complex" if "complex" in dtype else "bool" if dtype == "bool" else "int"


def bytes_of(dtype: str, shape: Sequence[int]) -> int | None:
    """Return the bytes of a tensor's elements; ``None`` where the dtype or a size is unknown.

    >>> bytes_of("float32", (2, 3)), bytes_of("float32", (2, -1)), bytes_of("mine", (2,))
    (24, None, None)
    """
    known = DTYPES.get(dtype)
    return None if known is None or min(shape, default=0) < 0 else math.prod(shape) * known.bits // 8
