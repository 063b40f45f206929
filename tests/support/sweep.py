"""Sweeps: cases by the hundred. ``make test`` runs a sample of each, ``make sweep`` (``pytest --sweep``) all of it.

A sample has every case that a defect was ever found by, and of the others as many as stand for the rest.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Sequence
from typing import Any

_whole = False


def begin(whole: bool) -> None:
    """Settle what runs, before tests are collected."""
    global _whole
    _whole = whole


def whole() -> bool:
    """Are all cases to run, not a sample?"""
    return _whole


def sampled(names: Iterable[str], every: int, always: Collection[str] = ()) -> list[str]:
    """All names in a sweep; else one of each ``every``, and those that begin like one of ``always``."""
    return [name for i, name in enumerate(names) if _whole or i % every == 0 or name.startswith(tuple(always))]


def spread(*axes: Iterable[Any], rounds: int = 1) -> list[tuple[Any, ...]]:
    """Every combination in a sweep; else each element of the longest axis ``rounds`` times, beside others by lot.

    The lot is the same each time, and no element of an axis is drawn again before all others were.
    """
    lists: list[list[Any]] = [list(axis) for axis in axes]
    if _whole:
        return list(itertools.product(*lists))
    lot, longest = random.Random(0), max(lists, key=len)
    drawn = [longest * rounds if each is longest else _by_lot(each, len(longest) * rounds, lot) for each in lists]
    return list(zip(*drawn, strict=True))


def _by_lot(elements: Sequence[Any], count: int, lot: random.Random) -> list[Any]:
    drawn = [lot.sample(elements, len(elements)) for _ in range(0, count, len(elements))]
    return list(itertools.chain(*drawn))[:count]


def examples(sample: int, all_of_them: int) -> int:
    """How many examples Hypothesis makes up."""
    return all_of_them if _whole else sample
