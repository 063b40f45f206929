"""Texts that are the same but for the last bits of their numbers: those are the processor's, not ours."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\d+(?=e[-+]?\d))(?:e[-+]?\d+)?(?![\w.])")
SMALLEST = 1.2e-7  # of a sum of float32 numbers about 1 nothing below this is sure


def same_to_rounding(found: str, expected: str) -> bool:
    """Are two texts equal, numbers up to two units of their last printed digit, and what float32 rounds away?

    Whole numbers, words and lines are compared as they are; spaces beside a number may make up for its length.
    """
    if found == expected:
        return True
    one, other = _NUMBER.findall(found), _NUMBER.findall(expected)
    words = [re.sub(r" *‹number› *", "‹number›", _NUMBER.sub("‹number›", text)) for text in (found, expected)]
    return words[0] == words[1] and all(map(_near, one, other))


def _near(one: str, other: str) -> bool:
    a, b = float(one), float(other)
    return abs(a - b) <= max(2.01 * max(_unit(one), _unit(other)), SMALLEST)


def _unit(number: str) -> float:
    """Return what the last digit of a number counts; of the sixth where trailing zeros were left out."""
    digits, _, exponent = number.partition("e")
    places = len(digits.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - places) if math.isfinite(float(number)) else 0.0
