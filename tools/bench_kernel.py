"""What the statistics of a large tensor cost, in times of reading it: a part of ``make bench``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from bench_bars import Verdict
from fxdebug.stats.measure import measure

COUNT = 1 << 24  # elements: more than any cache holds
ROUNDS = 15
LIMITS = {torch.float32: 2.5, torch.bfloat16: 3.5}


def reads(tensor: torch.Tensor) -> float:
    """The median of pairs: the time of ``measure`` by that of a reduction that does nothing but read the bytes."""
    words = tensor.view(torch.int64).numpy()
    ratios = []
    for _ in range(ROUNDS):
        read = _timed(lambda: np.bitwise_or.reduce(words))
        ratios.append(_timed(lambda: measure(tensor)) / read)
    return statistics.median(ratios)


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def kernel_verdicts() -> list[Verdict]:
    """The bars of the statistics kernel."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(COUNT, generator=generator)
    found = []
    for kind, tensor in (("normal numbers", numbers), ("the same after a ReLU", numbers.relu())):
        for dtype, limit in LIMITS.items():
            what = f"statistics of {COUNT >> 20} Mi {str(dtype)[6:]}, {kind}: at most {limit:g} times reading them"
            found.append(Verdict(what, reads(tensor.to(dtype)), limit))
    return found
