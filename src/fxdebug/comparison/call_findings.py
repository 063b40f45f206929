"""Where a run has no graphs: findings by what calls were given and returned, as far as the operations did not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxdebug.comparison.verdict import Row

BETWEEN = "the same inputs give other values"


def by_calls(rows: Sequence[Row], findings: Sequence[Row]) -> list[Row]:
    """Innermost calls that were given the same and returned something else, where no finding explains it.

    ``rows`` are all of a comparison. A difference that is gone in the last call that can be compared is no finding.
    """
    calls = [row for row in rows if row.op is None and row.a is not None and row.b is not None]
    leaves = [row for row in calls if row.b is not None and not row.b.call.children and row.measures.what != "unknown"]
    if not leaves or leaves[-1].error <= leaves[-1].tolerance:
        return []
    told = {row.b.call.index for row in findings if row.b is not None}
    found: list[Row] = []
    for row in calls:
        differs = row.verdict == "inherited" and row.error > row.tolerance >= row.error_in
        if differs and row.b is not None and told.isdisjoint(inner.index for inner in row.b.call.walk()):
            found.append(replace(row, verdict="adds", kind="values", because=BETWEEN))
    own = {row.b.call.index for row in found if row.b is not None}
    return [row for row in found if own.isdisjoint(_inside(row))]


def _inside(row: Row) -> set[int]:
    """The calls below the one of a row."""
    return set() if row.b is None else {call.index for call in row.b.call.walk() if call is not row.b.call}
