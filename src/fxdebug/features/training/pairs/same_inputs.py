"""Do inputs that are the same come with the same targets? If not, nothing can be learned of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import SameInputs
from fxdebug.features.training.recorder.samples import rows_of

MOST_ROWS = 128  # of a batch
MOST_NUMBERS = 1 << 20  # of a batch, that are added up
MOST_KNOWN = 20_000  # different inputs
MOST_BATCHES = 1000
FEWEST = 100  # inputs that came again
CLOSE = 1e-6


@dataclass
class _Input:
    """An input: the target that it had first, how often it came again, and with what."""

    first: float | int
    again: int = 0
    alike: int = 0
    apart: float = 0.0


class Repeated:
    """Inputs that came so far with their targets; :meth:`add` takes those of one loss."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], _Input] = {}
        self._batches = 0
        self._targets: Counter[float | int] = Counter()
        self._rows = 0
        self._sum = self._square = 0.0
        self._are_numbers: bool | None = None

    def add(self, given: Sequence[Tensor], target: Tensor) -> None:
        """Hold the targets of a batch against those with which the same inputs came before."""
        self._batches += 1
        if self._batches > MOST_BATCHES or len(self._known) >= MOST_KNOWN or not target.dim() or len(target) < 2:
            return
        whole = [one for one in given if one.dim() and len(one) == len(target) and not one.is_complex()]
        if not whole or len(whole) < len([one for one in given if one.dim()]) or whole[0].dim() < 2:
            return  # something that is no row belongs to all of them
        with untracked():
            rows = min(MOST_ROWS, len(target), MOST_NUMBERS // max(1, sum(one[0].numel() for one in whole)))
            if rows < 2:
                return
            keys = list(zip(*[_keys(one.detach()[:rows]) for one in whole], strict=True))
            told = target.detach()[:rows].reshape(rows, -1)
            is_number = told.is_floating_point()
            values = _numbers(told).tolist() if is_number else _values(told)
        if self._are_numbers is None:
            self._are_numbers = is_number
        if self._are_numbers == is_number:
            self._hold(keys, values)

    def _hold(self, keys: Sequence[tuple[int, ...]], values: Sequence[float | int]) -> None:
        for key, value in zip(keys, values, strict=True):
            self._rows += 1
            if self._are_numbers:
                self._sum += value
                self._square += value * value
            else:
                self._targets[value] += 1
            known = self._known.get(key)
            if known is None:
                self._known[key] = _Input(value)
                continue
            known.again += 1
            known.alike += known.first == value
            known.apart += (known.first - value) ** 2 if self._are_numbers else 0.0

    def facts(self) -> SameInputs | None:
        """Return how often the same input came with the same target, and how often two targets are alike by chance."""
        again = sum(one.again for one in self._known.values())
        if again < FEWEST or not self._rows:
            return None
        chance, variance = sum((n / self._rows) ** 2 for n in self._targets.values()), 0.0
        if self._are_numbers:
            variance = self._square / self._rows - (self._sum / self._rows) ** 2
            if not math.isfinite(variance) or variance <= CLOSE * max(1.0, self._square / self._rows):
                return None
        commonest = max(self._known.values(), key=lambda one: one.again)
        share = (commonest.again + 1) / self._rows
        each = [_alike(those, variance) for those in (list(self._known.values()), [commonest])]
        return SameInputs(again, each[0], round(chance, 4), round(share, 4), each[1])


def _alike(inputs: Sequence[_Input], variance: float) -> float:
    """Return how often inputs came again with the target that they had, or how much of its variance they tell."""
    again = max(1, sum(one.again for one in inputs))
    if variance:
        return round(max(0.0, 1 - sum(one.apart for one in inputs) / again / (2 * variance)), 4)
    return round(sum(one.alike for one in inputs) / again, 4)


def _keys(rows: Tensor) -> list[int]:
    """Return numbers that tell rows apart: by a few of their elements, and a sum with weights that were drawn once."""
    flat = rows.reshape(len(rows), -1)
    return [hash(one) for one in zip(rows_of(flat), _numbers(flat).tolist(), strict=True)]


def _numbers(rows: Tensor) -> Tensor:
    """Return a number for each row: of several its sum with weights that were drawn once.

    Targets that are known by their distance from an answer alone are not the same to the last bit.
    """
    flat = rows.cpu().double()
    if flat.shape[1] == 1:
        return flat[:, 0]
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal(flat.shape[1]))
    return (flat * weights).sum(1)


def _values(rows: Tensor) -> list[int]:
    if rows.shape[1] == 1:
        return [int(one) for one in rows[:, 0].tolist()]
    return rows_of(rows)
