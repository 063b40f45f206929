"""Fold the long lists of a comparison: the calls an error goes through, the calls without a partner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from rich.text import Text

from fxdebug.cells import cell_len, padded, shortened_to
from fxdebug.comparison.result import ComparisonData, Row, Side
from fxdebug.data.calls import Call
from fxdebug.exports.columns import number
from fxdebug.exports.ranges import path_range, without_numbers
from fxdebug.printable import printable

LINES = 9  # of the chain, unless everything is asked for
Item = TypeVar("Item")


def error_chain(comparison: ComparisonData, width: int, fold: bool = True) -> Iterator[Text]:
    """Yield the way of the first finding's error and its size: a line for each call, or for repeated calls."""
    first = comparison.first
    rows = [row for row in comparison.chain() if first is not None and row.path != first.path]
    if not rows:
        return
    groups = group_rows(rows) if fold else [[row] for row in rows]
    shown: list[list[Row] | None] = list(groups)
    if fold and len(groups) > LINES:
        shown = [*groups[: LINES - 3], None, *groups[-2:]]
    yield Text("\nand from there", "bold")
    names = ["…" if group is None else _name(group) for group in shown]
    room = max(min(max(map(cell_len, names)), width - 40), 12)
    others = list(comparison.findings[1:])
    for name, group in zip(names, shown):
        line = Text("  ")
        if group is None:
            line.append(f"… {len(groups) - len(shown) + 1} more", "dim")
        else:
            line.append(padded(shortened_to(name, room, "ends"), room))
            line.append(f"  {padded(_errors(group), 19)}")
            here = {call.index for row in group if row.b is not None for call in row.b.call.walk()}
            inside = [finding for finding in others if finding.b is not None and finding.b.call.index in here]
            if inside:
                line.append("  adds more", "red")
                others = [finding for finding in others if finding not in inside]  # shown at the innermost call alone
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        yield line


def group_rows(rows: Iterable[Row]) -> list[list[Row]]:
    """Group successive rows whose paths differ in numbers only."""
    return [list(group) for _, group in groupby(rows, key=lambda row: (without_numbers(row.path), bool(row.path)))]


def _name(group: Sequence[Row]) -> str:
    first = group[0]
    if first.b is not None and not first.path:
        return first.b.type
    return printable(path_range([row.path for row in group]))


def _errors(group: Sequence[Row]) -> str:
    """Return the error, or the first and the last of a group."""
    ends = [number(row.error) if row.error < float("inf") else "∞" for row in (group[0], group[-1])]
    return ends[0] if len(group) == 1 or ends[0] == ends[1] else f"{ends[0]} → {ends[1]}"


def group_by_pattern(items: Iterable[Item], name: Callable[[Item], str]) -> list[list[Item]]:
    """Group items whose names differ in numbers only, in the order of the first of each."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(without_numbers(name(item)), []).append(item)
    return list(groups.values())


def call_patterns(calls: Iterable[Call]) -> list[tuple[str, str]]:
    """Return the outermost of these calls as (paths, class), repeated ones as one, in the order they began."""
    by_index = {call.index: call for call in calls}
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in by_index.values():
        if call.parent_index not in by_index:
            groups.setdefault((without_numbers(call.path), call.type), []).append(call)
    lines = []
    for (_, kind), group in groups.items():
        inside = sum(inner.index in by_index for call in group for inner in call.walk()) - len(group)
        with_inner = f", with {inside} call{'s' * (inside != 1)} inside" if inside else ""
        lines.append((path_range([call.path for call in group]) if group[0].path else kind, kind + with_inner))
    return lines


def operation_patterns(sides: Iterable[Side], fold: bool = True) -> list[tuple[str, str]]:
    """Return operations as (path, names of its operations), in order; paths that differ in numbers only as one."""
    by_path: dict[str, Counter[str]] = {}
    types: dict[str, str] = {}
    for side in sides:
        by_path.setdefault(side.path, Counter())[side.op or side.type] += 1
        types[side.path] = side.type
    groups: dict[tuple[str, str], list[str]] = {}
    for path, counts in by_path.items():
        names = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counts.items())
        groups.setdefault((without_numbers(path) if fold else path, names), []).append(path)
    return [(path_range(paths) if paths[0] else types[""], names) for (_, names), paths in groups.items()]
