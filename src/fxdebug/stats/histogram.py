"""Histograms of tensors: exact counts between equally spaced edges, NaN and infinite elements counted apart."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fxdebug.data.measured.histograms import DistributionName, Histogram
from fxdebug.stats.elements import elements

Edges: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

BINS = 64
LARGEST = float(np.finfo(np.float64).max)
MOST = 1 << 20  # elements at a time in float64
SAMPLED = 100_000  # elements for the test of a distribution: equally spaced ones of the tensor
CRITICAL = 1.63  # over the root of the number of elements: the test of Kolmogorov and Smirnov at 1 %


def histogram(tensor: Tensor, bins: int = BINS) -> Histogram:
    """Count the elements of a real tensor of any dtype between ``bins + 1`` edges from the smallest to the largest.

    Edges and counts are those of ``numpy.histogram`` in float64. A constant tensor has one half on either side.

    >>> histogram(torch.tensor([0.0, 1.0, 1.0, 4.0, float("nan")]), bins=2)
    Histogram(edges=(0.0, 2.0, 4.0), counts=(3, 1), nan=1, inf=0)
    """
    flat = elements(tensor)
    nan = inf = 0
    low = high = None
    for part in flat.split(MOST):
        wide = part.cpu().to(torch.float64)
        finite = wide[wide.isfinite()]
        nan += int(wide.isnan().sum())
        inf += int(wide.isinf().sum())
        if finite.numel():
            least, most = float(finite.min()), float(finite.max())
            low = least if low is None else min(low, least)
            high = most if high is None else max(high, most)
    if low is None or high is None:
        return Histogram((), (), nan, inf)
    edges = edges_between(low, high, bins)
    counts = np.zeros(bins, dtype=np.int64)
    for part in flat.split(MOST):
        wide = part.cpu().to(torch.float64)
        finite = wide[wide.isfinite()]  # a copy: numpy pins no storage of the model's
        counts += np.histogram(np.from_dlpack(finite), bins=edges)[0]
    return Histogram(tuple(map(float, edges)), tuple(map(int, counts)), nan, inf)


def edges_between(low: float, high: float, bins: int) -> Edges:
    """Return ``bins + 1`` edges from one number to another, as numpy has them; around a single number if both are one.

    numpy puts one half on either side of it, which is nothing beside a large number: there it is a millionth.

    >>> edges_between(1.0, 1.0, 2).tolist(), [f"{edge:.7g}" for edge in edges_between(1e30, 1e30, 2)]
    ([0.5, 1.0, 1.5], ['9.99999e+29', '1e+30', '1.000001e+30'])
    """
    half = 1e-6 * abs(low)
    if high - low < half * 1e-6 and half > 1:
        low, high = max(low - half, -LARGEST), min(high + half, LARGEST)
    if not np.isfinite(high - low):
        return np.linspace(low / 2, high / 2, bins + 1) * 2
    return np.histogram_bin_edges(np.array([low, high]), bins=bins)


def distribution_of(tensor: Tensor) -> DistributionName:
    """Say which distribution the elements have: uniform, normal or constant; ``other`` where the test rejects both.

    The test is that of Kolmogorov and Smirnov at 1 % against a distribution with the elements' own mean and deviation;
    of fewer than 100 elements it cannot tell, and the answer is ``other``.

    >>> distribution_of(torch.ones(5)), distribution_of(torch.linspace(-1, 1, 1000))
    ('constant', 'uniform')
    """
    flat = elements(tensor)
    step = max(1, flat.numel() // SAMPLED)
    sample = np.sort(np.asarray(flat[::step].cpu().to(torch.float64).tolist()))
    if not len(sample) or not np.isfinite(sample).all():
        return "other"
    if sample[0] == sample[-1]:
        return "constant"
    if len(sample) < 100:
        return "other"
    mean, std = sample.mean(), sample.std()
    half = std * 3**0.5
    ranks = np.arange(len(sample) + 1) / len(sample)
    standard = torch.from_dlpack((sample - mean) / std)
    normal = torch.special.ndtr(standard).tolist()
    distances: dict[DistributionName, float] = {
        "uniform": _distance(np.clip((sample - mean + half) / (2 * half), 0, 1), ranks),
        "normal": _distance(np.asarray(normal), ranks),
    }
    best = min(distances, key=lambda kind: distances[kind])
    return best if distances[best] * len(sample) ** 0.5 < CRITICAL else "other"


def _distance(cumulative: np.ndarray, ranks: np.ndarray) -> float:  # type: ignore[type-arg]
    return float(max((ranks[1:] - cumulative).max(), (cumulative - ranks[:-1]).max()))
