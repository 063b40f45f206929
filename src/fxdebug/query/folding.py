"""Folding repeated layers for display: each is shown once, and nothing is dropped from the trace.

Siblings are folded when they do the same: same classes, same shapes and dtypes in and out, same calls below, and none
of them with a NaN, an infinity or an exception that the others lack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Stats, Value, pooled

FEWEST = 3  # repetitions worth folding
LONGEST_PERIOD = 8  # the most siblings in one repeating pattern (attention, mlp, attention, mlp …)

_NUMBER = re.compile(r"\d+")


@dataclass
class FoldedCalls:
    """One row of a displayed call tree: the calls that it stands for (one, or the repetitions) and the rows below.

    ``repeats`` is how often the pattern repeats here. Below a row that repeats, each row stands for as many calls
    without repeating anything itself.
    """

    calls: tuple[Call, ...]
    repeats: int = 1
    children: list[FoldedCalls] = field(default_factory=list)

    @property
    def first(self) -> Call:
        """The first call, whose shapes and name are shown for all."""
        return self.calls[0]

    @property
    def name(self) -> str:
        """The last part of the path; for repetitions the first and the last of them.

        ``0 … 11 ×12`` for twelve layers, ``cell ×7`` for one module called seven times.
        """
        first, last = _own_name(self.calls[0]), _own_name(self.calls[-1])
        if self.repeats == 1:
            return first
        return f"{first} ×{self.repeats}" if first == last else f"{first} … {last} ×{self.repeats}"

    def stats(self) -> Stats | None:
        """Return the statistics of the first output tensor, pooled over the repetitions."""
        known = [value.stats for call in self.calls if (value := main_output(call)) is not None and value.stats]
        return pooled(known) if known else None


def main_output(call: Call) -> Value | None:
    """Return the first tensor that a call returned, or ``None``."""
    return None if call.outputs is None else next(iter(call.outputs), None)


def fold_repeated(
    trace: TraceData, *, fold: bool = True, depth: int | None = None, alike: Callable[[Call], object] | None = None
) -> FoldedCalls:
    """Return the rows of the call tree with repetitions folded, down to ``depth`` levels below the root.

    ``alike`` returns a further key that must be equal for calls to be folded.
    """
    signatures = _Signatures(trace, alike) if fold else None
    return _row((trace.root,), signatures, depth)


def _row(calls: tuple[Call, ...], alike: _Signatures | None, depth: int | None) -> FoldedCalls:
    root = FoldedCalls(calls)
    pending = [(root, depth)]
    while pending:
        row, left = pending.pop()
        if left == 0:
            continue
        below = list(zip(*(call.children for call in row.calls), strict=True))
        for group in _grouped(below, alike):
            child = FoldedCalls(group, len(group) // len(row.calls))
            row.children.append(child)
            pending.append((child, None if left is None else left - 1))
    return root


def _grouped(below: list[tuple[Call, ...]], alike: _Signatures | None) -> list[tuple[Call, ...]]:
    """Merge repeating siblings; each sibling comes as the tuple of calls at its position in all parents."""
    if alike is None:
        return below
    keys = [alike.key(group) for group in below]
    result: list[tuple[Call, ...]] = []
    start = 0
    while start < len(below):
        period, repeats = _repetition(keys, start)
        for offset in range(period):
            merged: list[Call] = []
            for repeat in range(repeats):
                merged += below[start + repeat * period + offset]
            result.append(tuple(merged))
        start += period * repeats
    return result


def _repetition(keys: list[object], start: int) -> tuple[int, int]:
    """Return period and repetitions of the pattern that starts here; (1, 1) if nothing repeats often enough."""
    for period in range(1, LONGEST_PERIOD + 1):
        repeats = 1
        while True:
            begin = start + repeats * period
            if keys[begin : begin + period] != keys[start : start + period] or begin + period > len(keys):
                break
            repeats += 1
        if repeats >= FEWEST:
            return period, repeats
    return 1, 1


class _Signatures:
    """A number for each call, equal for calls that do the same all the way down."""

    def __init__(self, trace: TraceData, alike: Callable[[Call], object] | None) -> None:
        self._numbers: dict[object, int] = {}
        self._of: dict[int, int] = {}
        for call in reversed(trace.calls):  # in reverse: children before their parents
            inside = tuple(self._of[child.index] for child in call.children)
            more = None if alike is None else alike(call)
            labels = _labels(call.inputs), _labels(call.outputs)
            signature = (call.type, labels, bool(call.error), _has_nonfinite(call), more, inside)
            self._of[call.index] = self._numbers.setdefault(signature, len(self._numbers))

    def key(self, group: tuple[Call, ...]) -> object:
        """Return the key of a group of equal calls: their name without numbers, and their signature."""
        return _NUMBER.sub("#", _own_name(group[0])), self._of[group[0].index]


def _labels(values: Inputs | Outputs | None) -> tuple[str, ...]:
    return () if values is None else tuple(value.label for value in values)


def _has_nonfinite(call: Call) -> bool:
    """Is there a NaN or an infinity in a result of the call?"""
    return any(v.stats is not None and v.stats.finite < v.stats.count for v in call.outputs or ())


def _own_name(call: Call) -> str:
    parent = call.parent
    if not call.path:
        return call.type if parent is None else "(itself)"
    if parent is not None and parent.path and call.path.startswith(parent.path + "."):
        return call.path[len(parent.path) + 1 :]
    return call.path
