"""Spikes and trends of losses: noise, losses near 0 and heavy tails are none."""

from __future__ import annotations

import math
import random

import pytest

from fxdebug.features.training.spikes import is_spike
from fxdebug.features.training.trend import trend


def spikes(losses: list[float]) -> list[int]:
    return [i for i, loss in enumerate(losses) if is_spike(losses[max(0, i - 100) : i], loss, losses[:20])]


def noise(seed: int, steps: int = 2000) -> list[float]:
    drawn = random.Random(seed)
    return [drawn.gauss(0, 1) for _ in range(steps)]


HEALTHY = {
    "falls to 0 and moves there": lambda z, i: 2.3 * math.exp(-i / 30) + 1e-4 * math.exp(1.5 * z),
    "falls to 0 and moves by orders of magnitude": lambda z, i: 2.3 * math.exp(-i / 30) + 1e-5 * math.exp(3 * z),
    "a batch of one": lambda z, i: math.exp(2 * z),
    "a language model": lambda z, i: 2.5 + 8 * math.exp(-i / 100) + 0.1 * z,
    "a constant with a little noise": lambda z, i: 1 + 1e-6 * z,
    "a likelihood below 0": lambda z, i: -i / 100 + z,
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_loss_has_no_spike(name: str, seed: int) -> None:
    assert spikes([HEALTHY[name](z, i) for i, z in enumerate(noise(seed))]) == []


@pytest.mark.parametrize(
    "name, factor",
    [("a language model", 4), ("falls to 0 and moves there", 1e5), ("a constant with a little noise", 2)],
)
def test_a_loss_that_jumps_is_a_spike(name: str, factor: float) -> None:
    losses = [HEALTHY[name](z, i) for i, z in enumerate(noise(0, 600))]
    losses[500] *= factor
    assert spikes(losses) == [500]


@pytest.mark.parametrize(
    "losses, expected",
    [
        ([1.0] * 19, None), ([1.0] * 20, "flat"), ([1.0, None, math.nan] * 7, None),
        ([1 / (1 + i) for i in range(20)], "falling"), ([float(i) for i in range(1000)], "rising"),
        (noise(3, 400), "flat"),
    ],
)  # fmt: skip
def test_a_trend_is_told_from_twenty_numbers_on(losses: list[float], expected: str | None) -> None:
    assert trend(losses) == expected
