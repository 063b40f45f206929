"""Sequences are aligned by scores, long ones by runs of equal keys."""

from __future__ import annotations

from fxdebug.comparison.pairing.align import aligned_pairs


def test_sequences_that_are_too_long_to_be_scored_are_paired_by_runs_of_equal_keys():
    a = list(range(1_200))
    b = [*a[:600], -1, *a[600:]]
    weighed: list[int] = []
    assert aligned_pairs(a, b, lambda x, y: float(weighed.append(x) or 1), lambda x: x) == list(zip(a, a))
    assert weighed == []
