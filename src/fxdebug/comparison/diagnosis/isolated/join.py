"""Join what the plain runs and the isolated run of ``compare_models`` show, so that one judge tells the first finding.

Up to its first finding the plain runs are equal, so that finding is read from operations. An isolated run finds the
others, but where a call was given or returned a wrong value, which was replaced, it knows the call alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxdebug.comparison.diagnosis.cause import SAME_INPUTS, SAME_OPERATIONS, UNPAIRED
from fxdebug.comparison.diagnosis.isolated.handover import NOT_AS_IN_A
from fxdebug.comparison.result import ComparisonData, Row, in_order

_UNSURE = ("values", "wiring", "shape")  # kinds that an isolated run tells where values that it put in meet others


def joined(plain: ComparisonData, isolated: ComparisonData) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the findings of an isolated run with the first one of the plain runs, and all rows with these."""
    first, found = min(plain.findings, key=_position, default=None), isolated.findings
    if first is not None and found and all(row.because.endswith(UNPAIRED) for row in found):
        return (first,), (first, *isolated.rows)
    if first is None or not found or first.kind in ("input", "raised"):
        return found, isolated.rows
    first_alone = min(found, key=_position)
    if _same(first, first_alone):
        return found, isolated.rows
    same = next((row for row in found if _same(first, row)), None)
    shown = next((row for row in found if row.handed_over and row.path == first.path), None)
    anchor = same or shown or _anchor(first, isolated.rows)
    if anchor is None and _names_no_cause(first_alone):
        return (first, *found), (first, *isolated.rows)  # what the plain runs know says since when
    told_both_sides = shown is not None and shown.kind == first.kind == "wiring" and not _names_no_cause(shown)
    if anchor is None or told_both_sides or _names_the_source(first_alone, anchor, first):
        return found, isolated.rows
    told = same or _told(first, anchor)
    dropped = {id(row) for row in found if row is shown or (row.position < told.position and row.kind in _UNSURE)}
    kept = [row for row in found if id(row) not in dropped and row is not same]
    swapped = {id(anchor): told}
    rows = [swapped.get(id(row), row) for row in isolated.rows if row is anchor or id(row) not in dropped]
    return tuple(in_order([told, *kept])), tuple(rows)


def _names_the_source(row: Row, at: Row, plain: Row) -> bool:
    """Is it an operation before another one that an isolated run knows by itself, as one whose statistics are equal?"""
    ops = [side.op if side is not None else None for side in (row.a, row.b)]
    is_unsure = row.kind in ("wiring", "shape")
    if _names_no_cause(row) or (plain.kind == "wiring" and row.because == f"{ops[0]} in a, {ops[1]} in b"):
        is_unsure = True  # where values meet that the plain runs know to be of other places
    return not row.handed_over and not is_unsure and row.position < at.position


def _names_no_cause(row: Row) -> bool:
    """Does it say that something differs, and no more?"""
    return row.because in (SAME_INPUTS, SAME_OPERATIONS) or (row.handed_over and row.because.endswith(NOT_AS_IN_A))


def _same(a: Row, b: Row) -> bool:
    return (a.path, a.op, a.kind, a.because) == (b.path, b.op, b.kind, b.because)


def _anchor(first: Row, rows: Sequence[Row]) -> Row | None:
    """Return the row of the same operation, else of the same call, in an isolated run."""
    if first.b is None:
        return None
    alike = [row for row in rows if row.b is not None and row.b.node == first.b.node]
    return next((row for row in alike if row.op == first.op), next(iter(alike), None))


def _told(first: Row, at: Row) -> Row:
    """Return the finding of the plain runs with the sides that an isolated run has of it."""
    knows = first.b is None or first.b.op is None or (at.b is not None and at.b.op is not None)  # the operation
    return (
        replace(first, a=at.a or first.a, b=at.b or first.b, position=at.position)
        if knows
        else replace(first, position=at.position)
    )


def _position(row: Row) -> int:
    return row.position
