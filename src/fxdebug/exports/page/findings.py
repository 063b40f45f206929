"""Findings and notes with the places of a page that they are about."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.exports.page.pack import NONE
from fxdebug.exports.page.places import Places
from fxdebug.printable import printable, printable_lines


def finding_data(findings: Iterable[Finding], places: Places) -> list[dict[str, Any]]:
    """Return findings as ``Finding`` of payload.ts."""
    found = []
    for one in findings:
        call, step = places.of_node(one.node) if one.node else (NONE, NONE)
        if call < 0:
            call = max(places.of_call(one.call), places.of_call(one.path))
        found.append(
            {
                "rule": printable(one.rule),
                "severity": one.severity,
                "what": printable(one.what),
                "advice": printable(one.advice),
                "source": printable(one.source or ""),
                "analysis": printable(one.analysis),
                "call": call,
                "step": step,
                "measured": _finite(one.measured),
                "threshold": _finite(one.threshold),
                "unit": one.unit,
                "reached": one.reached,
                "output": one.output,
                "others": [list(places.of_node(id)) for id in one.others],
            }
        )
    return found


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def note_data(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """Return notes as ``Note`` of payload.ts."""
    return [
        {
            "what": printable_lines(note.what),
            "where": printable(note.where),
            "call": NONE if note.call is None else note.call,
        }
        for note in notes
    ]
