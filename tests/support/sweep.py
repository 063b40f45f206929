"""Sweeps: cases by the hundred. ``make test`` runs a sample of each, ``make sweep`` (``pytest --sweep``) all of it.

A sample has every case that a defect was ever found by, and of the others as many as stand for the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

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


def examples(sample: int, all_of_them: int) -> int:
    """How many examples Hypothesis makes up."""
    return all_of_them if _whole else sample
