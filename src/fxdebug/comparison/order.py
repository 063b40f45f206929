"""Two sequences side by side: the pairing in order that fits best (Needleman and Wunsch, 1970)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from difflib import SequenceMatcher
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

LARGEST = 1_000_000  # pairs that are weighed one by one; beyond, equal runs of names decide


def in_order(
    a: Sequence[A], b: Sequence[B], score: Callable[[A, B], float], key: Callable[[A | B], Hashable]
) -> list[tuple[A, B]]:
    """Pairs of the two sequences, in order, with the highest sum of scores; a score of 0 or less pairs nothing.

    ``key`` is what must be equal for a certain match: equal beginnings and ends are paired without weighing.

    >>> in_order("xabc", "abdc", lambda x, y: float(x == y), lambda x: x)
    [('a', 'a'), ('b', 'b'), ('c', 'c')]
    """
    keys_a, keys_b = [key(item) for item in a], [key(item) for item in b]
    start = 0
    while start < min(len(a), len(b)) and keys_a[start] == keys_b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and keys_a[-1 - end] == keys_b[-1 - end]:
        end += 1
    front = [(a[i], b[i]) for i in range(start)]
    back = [(a[len(a) - i], b[len(b) - i]) for i in range(end, 0, -1)]
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    if len(inner_a) * len(inner_b) > LARGEST:
        return [*front, *_by_runs(inner_a, inner_b, keys_a[start:], keys_b[start:]), *back]
    return [*front, *_best(inner_a, inner_b, score), *back]


def _best(a: Sequence[A], b: Sequence[B], score: Callable[[A, B], float]) -> list[tuple[A, B]]:
    rows, columns = len(a), len(b)
    if not rows or not columns:
        return []
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    scores = [[score(x, y) for y in b] for x in a]
    for i in range(rows - 1, -1, -1):
        line, below, mine = best[i], best[i + 1], scores[i]
        for j in range(columns - 1, -1, -1):
            line[j] = max(below[j], line[j + 1], below[j + 1] + mine[j] if mine[j] > 0 else 0.0)
    found, i, j = [], 0, 0
    while i < rows and j < columns:
        if scores[i][j] > 0 and best[i][j] == best[i + 1][j + 1] + scores[i][j]:
            found.append((a[i], b[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _by_runs(a: Sequence[A], b: Sequence[B], keys_a: list[Hashable], keys_b: list[Hashable]) -> list[tuple[A, B]]:
    blocks = SequenceMatcher(None, keys_a[: len(a)], keys_b[: len(b)], autojunk=False).get_matching_blocks()
    return [(a[i + k], b[j + k]) for i, j, size in blocks for k in range(size)]
