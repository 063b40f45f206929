"""Folding repeated layers for display: each is shown once, and nothing is dropped from the trace.

Siblings are folded when they ran one after the other and do the same: same classes, same shapes and dtypes in and out,
same calls below, and none of them with a NaN, an infinity or an exception that the others lack. Siblings that repeat in
turn (Linear, ReLU, Linear, ReLU …) are folded as a group. The steps of a loop that keeps a cache may differ in sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Stats, Value, pooled
from fxdebug.query.loop_steps import LoopStep, loop_steps

FEWEST = 3  # repetitions worth folding
LONGEST_PERIOD = 16  # the most siblings that repeat in turn (norm, attention, norm, mlp …)

_LONGEST_TURN = 30  # characters for the names of all members of a turn

_NUMBER = re.compile(r"\d+")


@dataclass
class FoldedCalls:
    """One row of a displayed call tree: the calls that it shows (one, or the repetitions) and the rows below.

    ``repeats`` is how often the call repeats here. Below a row or in a group that repeats, each row stands for as many
    calls without repeating anything itself. ``plain_name`` is the last part of the path, for repetitions of the first
    and the last: ``0 … 11``.
    """

    calls: tuple[Call, ...]
    plain_name: str
    repeats: int = 1
    children: list[Row] = field(default_factory=list)

    @property
    def first(self) -> Call:
        """The first call, whose name is shown for all."""
        return self.calls[0]

    @property
    def name(self) -> str:
        """The name with the repetitions: ``0 … 11 ×12`` for twelve layers, ``cell ×7`` for one called seven times."""
        return self.plain_name + times(self.repeats)

    def stats(self) -> Stats | None:
        """Return the statistics of the first output tensor, pooled over the repetitions."""
        known = [value.stats for call in self.calls if (value := main_output(call)) is not None and value.stats]
        return pooled(known) if known else None


@dataclass
class RepeatedGroup:
    """A row for siblings that repeat in turn; the rows below are the members of one turn, at the depth of the group."""

    plain_name: str
    repeats: int
    children: list[Row]

    @property
    def name(self) -> str:
        """The names of the first and the last turn: ``(0, 1) … (10, 11) ×6``."""
        return self.plain_name + times(self.repeats)


Row: TypeAlias = FoldedCalls | RepeatedGroup
_Siblings: TypeAlias = tuple[Call, ...]  # the calls at one position in all parents that one row stands for


def times(repeats: int) -> str:
    """Return the end of a name that says how often it repeats; empty for once."""
    return f" ×{repeats}" if repeats > 1 else ""


def main_output(call: Call) -> Value | None:
    """Return the first tensor that a call returned, or ``None``."""
    return None if call.outputs is None else next(iter(call.outputs), None)


def fold_repeated(
    trace: TraceData, *, fold: bool = True, depth: int | None = None, alike: Callable[[Call], object] | None = None
) -> FoldedCalls:
    """Return the rows of the call tree with repetitions folded, down to ``depth`` levels below the root.

    ``alike`` returns a further key that must be equal for calls to be folded.
    """
    return _Folding(trace, fold, alike).rows(depth)


class _Folding:
    """Fold the calls of one trace."""

    def __init__(self, trace: TraceData, fold: bool, alike: Callable[[Call], object] | None) -> None:
        self._root = trace.root
        self._steps = loop_steps(trace)
        self._signatures = _Signatures(trace, self._steps, alike) if fold else None

    def rows(self, depth: int | None) -> FoldedCalls:
        """Return the row of the root with all rows below."""
        root = self._row((self._root,), 1)
        pending = [(root, depth)]
        while pending:  # without recursion: models may be nested deeper than Python can recurse
            row, left = pending.pop()
            if left == 0:
                continue
            below: list[_Siblings] = list(zip(*(call.children for call in row.calls), strict=True))
            row.children = self._fold(below, [self._key(siblings) for siblings in below])
            inside = list(row.children)
            while inside:
                child = inside.pop()
                if isinstance(child, RepeatedGroup):
                    inside.extend(child.children)
                else:
                    pending.append((child, None if left is None else left - 1))
        return root

    def _fold(self, below: list[_Siblings], keys: list[object]) -> list[Row]:
        """Return the rows of some siblings, repetitions merged; recurses into one turn of a repeating group."""
        if self._signatures is None:
            return [self._row(siblings, 1) for siblings in below]
        first_seen: dict[object, int] = {}
        for position, key in enumerate(keys):
            first_seen.setdefault(key, position)
        rows: list[Row] = []
        start = 0
        while start < len(below):
            period, repeats = _repetition(keys, start)
            shift = _shift(keys, first_seen, start, period, repeats)
            rows += [self._row(siblings, 1) for siblings in below[start : start + shift]]
            start += shift
            end = start + period * repeats
            members = [_merged(below[start + offset : end : period]) for offset in range(period)]
            if period == 1:
                rows.append(self._row(members[0], repeats))
            else:
                turn = self._fold(members, keys[start : start + period])
                rows.append(RepeatedGroup(self._group_name(below[start:end], period), repeats, turn))
            start = end
        return rows

    def _row(self, calls: _Siblings, repeats: int) -> FoldedCalls:
        return FoldedCalls(calls, self._name(calls[0], calls[-1]), repeats)

    def _group_name(self, below: list[_Siblings], period: int) -> str:
        turns = []
        for turn in (below[:period], below[-period:]):
            names = [self._name(siblings[0], siblings[0]) for siblings in turn]
            text = ", ".join(names)
            turns.append(f"({text})" if len(text) <= _LONGEST_TURN else f"({names[0]} … {names[-1]})")
        return turns[0] if turns[0] == turns[1] else " … ".join(turns)

    def _name(self, first: Call, last: Call) -> str:
        """Return the name of the calls from ``first`` to ``last``."""
        begin, end = self._steps.get(first.index), self._steps.get(last.index)
        if begin is None or end is None:
            names = _own_name(first), _own_name(last)
            return names[0] if names[0] == names[1] else " … ".join(names)
        module = f"{_own_name(first)} · " if first.path else ""
        numbers = f"{begin.number}" if begin == end else f"{begin.number} … {end.number}"
        return f"{module}step {numbers}" + (f" · {begin.phase}" if begin.phase else "")

    def _key(self, siblings: _Siblings) -> object:
        return None if self._signatures is None else self._signatures.key(siblings[0])


def _merged(siblings: Sequence[_Siblings]) -> _Siblings:
    return tuple([call for calls in siblings for call in calls])


def _repetition(keys: Sequence[object], start: int) -> tuple[int, int]:
    """Return period and repetitions of the pattern from here that covers most siblings; (1, 1) if nothing repeats."""
    best = 1, 1
    for period in range(1, min(LONGEST_PERIOD, (len(keys) - start) // FEWEST) + 1):
        matching = start + period  # the end of the part in which every key equals the one a period before
        while matching < len(keys) and keys[matching] == keys[matching - period]:
            matching += 1
        repeats = (matching - start) // period
        if repeats >= FEWEST and period * repeats > best[0] * best[1]:
            best = period, repeats
    return best


def _shift(keys: Sequence[object], first_seen: Mapping[object, int], start: int, period: int, repeats: int) -> int:
    """Return how many siblings to leave before a repeating group so that it begins where the loop in the code does.

    A loop whose first turn differs would otherwise seem to begin in the middle of a turn. Of the positions in the
    pattern the one begins whose sibling was called first of all, if that loses no repetition.
    """
    shift = min(range(period), key=lambda offset: first_seen[keys[start + offset]])
    end = start + shift + period * repeats
    whole = end <= len(keys) and all(keys[i] == keys[i - period] for i in range(start + period * repeats, end))
    return shift if whole else 0


class _Signatures:
    """A number for each call, equal for calls that do the same all the way down; in loop steps sizes may differ."""

    def __init__(self, trace: TraceData, steps: Mapping[int, LoopStep], alike: Callable[[Call], object] | None) -> None:
        self._numbers: dict[object, int] = {}
        self._of: dict[int, int] = {}
        in_steps: set[int] = set()
        for call in trace.calls if steps else ():
            if call.index in steps or call.parent_index in in_steps:
                in_steps.add(call.index)
        for call in reversed(trace.calls):  # in reverse: children before their parents
            inside = tuple(self._of[child.index] for child in call.children)
            more = None if alike is None else alike(call)
            labels = _kinds if call.index in in_steps else _labels
            step = steps.get(call.index)
            values = labels(call.inputs), labels(call.outputs), None if step is None else step.phase
            signature = (call.type, values, bool(call.error), _has_nonfinite(call), more, inside)
            self._of[call.index] = self._numbers.setdefault(signature, len(self._numbers))

    def key(self, call: Call) -> object:
        """Return the key of a call among its siblings: its name without numbers, and its signature."""
        return _NUMBER.sub("#", _own_name(call)), self._of[call.index]


def _labels(values: Inputs | Outputs | None) -> tuple[str, ...]:
    return () if values is None else tuple(value.label for value in values)


def _kinds(values: Inputs | Outputs | None) -> tuple[str, ...]:
    """Return dtypes and numbers of dimensions, without the sizes that grow with a cache."""
    return () if values is None else tuple(f"{value.dtype} {len(value.shape)}" for value in values)


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
