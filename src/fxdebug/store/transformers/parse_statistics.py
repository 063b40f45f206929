"""Statistics parsed from the text that torch prints."""

from __future__ import annotations

import math
import re

from fxdebug.data.values import Stats
from fxdebug.store.transformers.printed_statistics import PrintedStats

LEAST_MASK = -1e4  # a tensor of zeros and this or less is an additive mask, of which zeros would have to be counted
_NUMBER = r"[-+]?(?:inf|nan|\d+(?:\.\d*)?(?:e[-+]?\d+)?)"
SCALAR_TEXT = re.compile(rf"\(\s*({_NUMBER})\s*[,)]")
ELEMENT_TEXT = re.compile(rf"{_NUMBER}(?![\w.])|True|False")


# Statistics --------------------------------------------------------------------------------------


def printed_numbers(words: PrintedStats) -> list[float]:
    """The numbers in ``tensor(1.2500e+00)``; NaN for a text that holds none."""
    found = [SCALAR_TEXT.search(word) for word in words]
    return [math.nan if match is None else float(match[1]) for match in found]


def printed_digits(word: str) -> int:
    match = re.search(r"\.(\d+)e", word)
    return 0 if match is None else len(match[1])


def parse_statistics_of(
    shape: tuple[int, ...], dtype: str, words: PrintedStats | None, lines: list[str] | None
) -> Stats | None:
    """Statistics from the printed four and, where all elements are printed, from those.

    ``None`` where neither says enough: no text and a dtype the debugger has no statistics for, infinities or a mask
    that would have to be counted. The number of zeros is 0 where it is not known.

    >>> stats_of((2,), "float32", ("tensor(2.)", "tensor(1.4142e+00)", "tensor(1.)", "tensor(3.)"), None).absmax
    3.0
    >>> stats_of((3,), "int64", None, ["tensor([0, 5, 7])"]).max
    7
    """
    count = math.prod(shape)
    if count == 0:
        return Stats(0, None, None, None, None, None)
    elements = None if lines is None else _parse_elements(lines, dtype, count)
    if words is None or SCALAR_TEXT.search(words[0]) is None:
        return None if elements is None else _measure(elements)
    mean, std, low, high = printed_numbers(words)
    if not (math.isfinite(low) and math.isfinite(high)):
        if elements is not None:
            return _measure(elements)
        return Stats(count, None, None, None, None, None, 1) if low != low else None
    zeros = 0 if elements is None else sum(1 for element in elements if element == 0)
    if elements is None and (not math.isfinite(mean) or (high == 0 and low <= LEAST_MASK)):
        return None
    if not math.isfinite(mean) or (not math.isfinite(std) and count > 1):  # the sum or its squares left the dtype
        return None if elements is None else _measure(elements)
    return Stats(count, mean, std if count > 1 else 0.0, low, high, max(abs(low), abs(high)), zeros=zeros)


def _parse_elements(lines: list[str], dtype: str, count: int) -> list[float] | list[int] | None:
    """The elements as they are printed; ``None`` if they are not all there, or not readable."""
    text = " ".join(map(str, lines))
    if "..." in text or dtype.startswith(("complex", "q")) or not text.startswith(("tensor(", "Parameter containing:")):
        return None
    start, end = text.find("["), text.rfind("]")
    inside = text[start : end + 1] if start >= 0 else text[text.find("(") + 1 :].partition(",")[0]
    found = ELEMENT_TEXT.findall(inside)
    if len(found) != count:
        return None
    if dtype == "bool":
        return [int(element == "True") for element in found]
    exact = "int" in dtype
    try:
        return [int(element) for element in found] if exact else [float(element) for element in found]
    except ValueError:
        return None


def _measure(elements: list[float] | list[int]) -> Stats:
    """The statistics of elements in Python; there are never many, as torch abridges beyond a thousand."""
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
        len(elements), mean, std, low, high, max(abs(low), abs(high)), nan, posinf, neginf,
        sum(1 for element in finite if element == 0),
    )  # fmt: skip
