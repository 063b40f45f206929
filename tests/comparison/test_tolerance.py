"""Errors by the statistics of two values."""

from __future__ import annotations

import math

import pytest

from fxdebug.comparison.tolerance import error_between
from fxdebug.data.values import Stats


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), 0.0),
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 3.0, 0.0, 3.0, 3.0, 3.0), 2.0),
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0, nan=1), math.inf),
        # masks: how negative they are says nothing, how much they hide does
        (Stats(4, -5e3, 5e3, -1e4, 0.0, 1e4, zeros=2), Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, neginf=2, zeros=2), 0.0),
        (Stats(4, -5e3, 5e3, -1e4, 0.0, 1e4, zeros=2), Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, neginf=1, zeros=3), 1.0),
        (Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, zeros=4), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), math.inf),
    ],
)
def test_the_error_of_statistics(a, b, error):
    assert error_between(a, b) == pytest.approx(error)
