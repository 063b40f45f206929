"""Statistics parsed from the text in a debug tree: the four printed ones, or all elements where they are printed.

torch prints four digits after the point, so a statistic is exact to half a unit of the fifth digit. Where all elements
of a tensor are printed, counts and statistics are computed from those.
"""

from __future__ import annotations

import math
import re

from fxdebug.data.values import Stats
from fxdebug.store.transformers.printed_statistics import PrintedStats

_MOST_DIGITS = 100
LEAST_MASK = -1e4  # a tensor from this or less to 0 is an additive mask, whose statistics need a count of zeros
_NUMBER = r"[-+]?(?:inf|nan|\d+(?:\.\d*)?(?:e[-+]?\d+)?)"
SCALAR_TEXT = re.compile(rf"\(\s*({_NUMBER})\s*[,)]")
ELEMENT_TEXT = re.compile(rf"(?<![\w.]){_NUMBER}(?![\w.])|True|False")  # no number begins inside another


def printed_numbers(printed: PrintedStats) -> list[float]:
    """Return the numbers in texts like ``tensor(1.2500e+00)``; NaN for a text without one."""
    matches = [SCALAR_TEXT.search(text) for text in printed]
    return [math.nan if match is None else float(match[1]) for match in matches]


def printed_digits(text: str) -> int:
    """Return the number of digits after the point; 0 for a number without an exponent."""
    match = re.search(r"\.(\d+)e", text)
    return 0 if match is None else min(len(match[1]), _MOST_DIGITS)


def parse_stats(
    shape: tuple[int, ...], dtype: str, printed: PrintedStats | None, lines: list[str] | None
) -> Stats | None:
    """Return statistics from the four printed ones and, where all elements are printed, from the ``lines``.

    ``None`` where both are missing or not enough: a dtype without printed statistics, infinities or a mask that would
    have to be counted. The number of zeros is 0 where it is unknown.

    >>> parse_stats((2,), "float32", ("tensor(2.)", "tensor(1.4142e+00)", "tensor(1.)", "tensor(3.)"), None).absmax
    3.0
    >>> parse_stats((3,), "int64", None, ["tensor([0, 5, 7])"]).max
    7
    """
    count = math.prod(shape)
    if count == 0:
        return Stats(0, None, None, None, None, None)
    elements = None if lines is None else _parse_elements(lines, dtype, count)
    if printed is None or SCALAR_TEXT.search(printed[0]) is None:
        return None if elements is None else _measure(elements)
    mean, std, low, high = printed_numbers(printed)
    if not (math.isfinite(low) and math.isfinite(high)):
        if elements is not None:
            return _measure(elements)
        return Stats(count, None, None, None, None, None, 1) if low != low else None
    zeros = 0 if elements is None else sum(1 for element in elements if element == 0)
    if elements is None and (not math.isfinite(mean) or (high == 0 and low <= LEAST_MASK)):
        return None
    if not math.isfinite(mean) or (not math.isfinite(std) and count > 1):  # the sum or the squares overflowed
        return None if elements is None else _measure(elements)
    return Stats(count, mean, std if count > 1 else 0.0, low, high, max(abs(low), abs(high)), zeros=zeros)


def _parse_elements(lines: list[str], dtype: str, count: int) -> list[float] | list[int] | None:
    """Return the elements as they are printed; ``None`` if some are left out or cannot be read."""
    text = " ".join(map(str, lines))
    if "..." in text or dtype.startswith(("complex", "q")) or not text.startswith(("tensor(", "Parameter containing:")):
        return None
    start, end = text.find("["), text.rfind("]")
    inside = text[start : end + 1] if start >= 0 else text[text.find("(") + 1 :].partition(",")[0]
    texts = ELEMENT_TEXT.findall(inside)
    if len(texts) != count:
        return None
    if dtype == "bool":
        return [int(text == "True") for text in texts]
    try:
        return [int(text) for text in texts] if "int" in dtype else [float(text) for text in texts]
    except ValueError:
        return None


def _measure(elements: list[float] | list[int]) -> Stats:
    """Return the statistics of elements, in Python: torch prints at most a thousand before it abridges."""
    finite = [element for element in elements if math.isfinite(element)]
    nan = sum(1 for element in elements if element != element)
    posinf, neginf = (sum(1 for element in elements if element == side) for side in (math.inf, -math.inf))
    if not finite:
        return Stats(len(elements), None, None, None, None, None, nan, posinf, neginf)
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((element - mean) ** 2 for element in finite)
    std = math.sqrt(squares / (len(finite) - 1)) if len(finite) > 1 else 0.0
    low, high = min(finite), max(finite)
    return Stats(
        len(elements),
        mean,
        std,
        low,
        high,
        max(abs(low), abs(high)),
        nan,
        posinf,
        neginf,
        sum(1 for element in finite if element == 0),
    )
