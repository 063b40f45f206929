"""All that a page has of a comparison: the pairs, the findings, and the way of the first error onward."""

from __future__ import annotations

import math
from typing import Any

from fxdebug.comparison.measures import BASES
from fxdebug.comparison.result import KINDS, ComparisonData, Row, Side
from fxdebug.data.measures import counted
from fxdebug.exports.comparison.text import screen, tone, verdict
from fxdebug.exports.page.pack import NONE, Texts, integers, reals
from fxdebug.exports.page.places import Places
from fxdebug.printable import printable, printable_lines
from fxdebug.query.network import network_of

VERDICTS = ("equal", "inherited", "adds", "absorbed", "ignored", "unknown", "only_a", "only_b")
_WIDTH = 100  # columns of the text of the verdict
_NOTES = 2  # in the headline
_NAN = float("nan")


def comparison_data(comparison: ComparisonData, texts: Texts) -> dict[str, Any]:
    """Return ``ComparisonData`` of payload.ts; calls and steps are those of the two runs."""
    places = Places(comparison.a), Places(comparison.b)
    rows = _rows(comparison)
    kinds = list(KINDS)
    position = {id(row): i for i, row in enumerate(rows)}
    a = [_place(row.a, places[0]) for row in rows]
    b = [_place(row.b, places[1]) for row in rows]
    return {
        "verdict": comparison.verdict,
        "headline": _headline(comparison),
        "tone": tone(comparison),
        "summary": printable_lines(screen(comparison, width=_WIDTH, color=False)).split("\n"),
        "notes": [printable(note) for note in comparison.notes],
        "kinds": dict(KINDS),
        "rows": {
            "aCall": integers([call for call, _ in a]),
            "aStep": integers([step for _, step in a]),
            "bCall": integers([call for call, _ in b]),
            "bStep": integers([step for _, step in b]),
            "verdict": integers([VERDICTS.index(row.verdict) for row in rows]),
            "kind": integers([NONE if row.kind is None else kinds.index(row.kind) for row in rows]),
            "error": reals([row.error for row in rows]),
            "errorIn": reals([row.error_in for row in rows]),
            "tolerance": reals([row.tolerance for row in rows]),
            "sure": reals([row.sure for row in rows]),
            "because": texts.column([_because(row) for row in rows]),
            "how": texts.column([row.how for row in rows]),
            "aValue": integers([_value(row.a) for row in rows]),
            "bValue": integers([_value(row.b) for row in rows]),
            "maxAbs": reals([_NAN if row.measures.max_abs is None else row.measures.max_abs for row in rows]),
            "basis": integers([BASES.index(row.basis) for row in rows]),
        },
        "kindNames": kinds,
        "findings": [position[id(row)] for row in comparison.findings],
        "first": NONE if comparison.first is None else position[id(comparison.first)],
        "onward": _onward(comparison, places[1]),
        "counts": {
            "calls": list(comparison.coverage.calls),
            "operations": list(comparison.coverage.operations),
            "returned": list(comparison.coverage.returned),
            "share": comparison.coverage.share,
        },
    }


def _because(row: Row) -> str:
    """Return the cause of a finding, with the edit that repairs it."""
    return f"{row.because}. Tried: {row.repair}" if row.proven else row.because


def _headline(comparison: ComparisonData) -> list[str]:
    """Return the verdict in a sentence, and what goes with it: cause or largest difference, and what is missing."""
    lines = verdict(comparison).plain.split("\n")
    if comparison.first is not None and comparison.first.because:
        lines.append(comparison.first.because)
        lines += [f"tried: {comparison.first.repair}"] * comparison.first.proven
    lines += comparison.missing[0 if comparison.findings else 1 :]
    lines += [f"note: {note}" for note in comparison.notes[:_NOTES]]
    if len(comparison.notes) > _NOTES:
        lines.append(f"and {counted(len(comparison.notes) - _NOTES, 'more note')} among the findings")
    return [printable(line) for line in lines]


def _rows(comparison: ComparisonData) -> list[Row]:
    """Return all rows, with the findings that are not among them."""
    rows = list(comparison.rows)
    known = {id(row) for row in rows}
    return rows + [row for row in comparison.findings if id(row) not in known]


def _place(side: Side | None, places: Places) -> tuple[int, int]:
    if side is None:
        return NONE, NONE
    call, step = places.of_node(side.node) if side.op is not None and side.node else (NONE, NONE)
    return (call, step) if step >= 0 else (side.call.index, NONE)


def _value(side: Side | None) -> int:
    return NONE if side is None or side.value is None else side.value.number


def _onward(comparison: ComparisonData, places: Places) -> dict[str, Any]:
    """Return the calls and steps of b that the error of the first finding goes through, in execution order.

    These are the nodes that depend on it and whose own pair differs, and those on the way whose pairs are not known.
    """
    first = comparison.first
    start = None if first is None or first.b is None else first.b.node
    listed: list[tuple[int, int]] = []
    if start is not None:
        fine = {
            row.b.node
            for row in comparison.rows
            if row.b is not None and row.verdict == "equal" and row.measured and math.isfinite(row.error)
        }
        net = network_of(comparison.b)
        reached, pending = {start}, [start]
        while pending:
            for edge in net.out_of.get(pending.pop(), ()):
                if edge.target not in reached and edge.target not in fine:
                    reached.add(edge.target)
                    pending.append(edge.target)
        ordered = sorted(reached & net.nodes.keys(), key=lambda id: net.nodes[id].position)
        listed = [place for id in ordered if (place := places.of_node(id))[0] >= 0]
    return {"call": integers([call for call, _ in listed]), "step": integers([step for _, step in listed])}
