"""The four statistics of a tensor in the debug tree (mean, std, min, max), printed as torch prints them."""

from __future__ import annotations

import math
import struct

from fxdebug.data.values import Stats, Value

DTYPES_WITH_STATISTICS = frozenset({"float16", "float32", "bfloat16"})  # as in transformers' debugger


def print_statistics(
    value: Value, precision: int = 4, default_dtype: str = "float32"
) -> tuple[str, str, str, str] | None:
    """Return the four statistics as transformers' debugger prints them, made from our own; ``None`` without any.

    NaN and infinities propagate as they do in torch.
    """
    stats = value.stats
    if value.dtype not in DTYPES_WITH_STATISTICS or (stats is None and value.device != "meta"):
        return None
    suffix = "" if value.device == "cpu" else f", device='{value.device}'"
    suffix += ", size=()" if value.device == "meta" else ""
    if value.dtype != default_dtype:
        suffix += f", dtype=torch.{value.dtype}"
    if stats is None:
        text = f"tensor(...{suffix})"
        return text, text, text, text
    mean, std, low, high = (round_to_dtype(x, value.dtype) for x in torch_statistics(stats))
    return (
        _scalar(mean, precision, suffix),
        _scalar(std, precision, suffix),
        _scalar(low, precision, suffix),
        _scalar(high, precision, suffix),
    )


def torch_statistics(stats: Stats) -> tuple[float, float, float, float]:
    """Return mean, std, min and max with NaN and infinities where torch has them.

    Our own statistics are of the finite elements, beside counts of the others.
    """
    nan = math.nan
    if stats.nan or not stats.count:
        return nan, nan, nan, nan
    low = -math.inf if stats.neginf else stats.min if stats.min is not None else math.inf
    high = math.inf if stats.posinf else stats.max if stats.max is not None else -math.inf
    if stats.posinf or stats.neginf:
        return (nan if stats.posinf and stats.neginf else low if stats.neginf else high), nan, low, high
    assert isinstance(stats.mean, float) and stats.std is not None
    return stats.mean, stats.std if stats.count > 1 else nan, low, high


def round_to_dtype(number: float, dtype: str) -> float:
    """Return the nearest number that ``dtype`` (float16, bfloat16 or float32) can represent.

    >>> round_to_dtype(0.1, "bfloat16")
    0.10009765625
    """
    if not math.isfinite(number):
        return number
    try:
        if dtype == "float16":
            return float(struct.unpack("e", struct.pack("e", number))[0])
        (bits,) = struct.unpack("I", struct.pack("f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    if dtype == "bfloat16":  # the upper half of a float32, rounded to even
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("f", struct.pack("I", bits))[0])


def _scalar(number: float, precision: int, suffix: str) -> str:
    """Return a zero-dimensional tensor as torch prints it in scientific mode."""
    if number and math.isfinite(number):
        return f"tensor({number:.{precision}e}{suffix})"
    return f"tensor({f'{number:.0f}.' if number == 0 else number}{suffix})"


PrintedStats = tuple[str, str, str, str]
