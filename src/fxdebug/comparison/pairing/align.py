"""Align two sequences: pair their items in order, with the highest score (Needleman and Wunsch, 1970)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from difflib import SequenceMatcher
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

MOST_WEIGHED = 1_000_000  # pairs that are scored one by one; beyond that, runs of equal keys decide


def aligned_pairs(
    a: Sequence[A],
    b: Sequence[B],
    score: Callable[[A, B], float],
    key: Callable[[A | B], Hashable],
    kind: Callable[[A | B], Hashable] | None = None,
) -> list[tuple[A, B]]:
    """Return the pairs in order that have the highest sum of scores; a score of 0 or less makes no pair.

    Sequences that are too long to score all pairs are paired by runs of equal ``key``. Items of another ``kind`` have a
    score of 0.

    >>> aligned_pairs("xabc", "abdc", lambda x, y: float(x == y), lambda x: x)
    [('a', 'a'), ('b', 'b'), ('c', 'c')]
    """
    if len(a) * len(b) > MOST_WEIGHED:
        return _aligned_runs(a, b, key)
    if kind is None:
        return _best_alignment(a, b, [[score(x, y) for y in b] for x in a])
    kinds = [kind(y) for y in b]
    rows = ((x, kind(x)) for x in a)
    return _best_alignment(
        a, b, [[score(x, y) if of_x == of_y else 0.0 for y, of_y in zip(b, kinds)] for x, of_x in rows]
    )


def _best_alignment(a: Sequence[A], b: Sequence[B], scores: Sequence[Sequence[float]]) -> list[tuple[A, B]]:
    rows, columns = len(a), len(b)
    if not rows or not columns:
        return []
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        line, below, mine = best[i], best[i + 1], scores[i]
        for j in range(columns - 1, -1, -1):
            line[j] = max(below[j], line[j + 1], below[j + 1] + mine[j] if mine[j] > 0 else 0.0)
    aligned, i, j = [], 0, 0
    while i < rows and j < columns:
        if scores[i][j] > 0 and best[i][j] == best[i + 1][j + 1] + scores[i][j]:
            aligned.append((a[i], b[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return aligned


def _aligned_runs(a: Sequence[A], b: Sequence[B], key: Callable[[A | B], Hashable]) -> list[tuple[A, B]]:
    one, other = [key(item) for item in a], [key(item) for item in b]
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return [(a[i + k], b[j + k]) for i, j, size in blocks for k in range(size)]
