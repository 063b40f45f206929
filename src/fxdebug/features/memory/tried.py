"""Try what makes the peak of memory smaller, and keep or withdraw it by what was measured."""

from __future__ import annotations

from fxdebug.data.calls import Note
from fxdebug.data.measures import quantity
from fxdebug.features.shared.tried_settings.trial import TrialRow, Trials, as_before, told, tries_of

KNOBS = (
    "autocast", "inference mode", "dtype of weights", "eval mode", "attention", "padding", "checkpointing",
    "sparse gradients", "hooks",
)  # fmt: skip
SMALLER = 0.95  # of the peak: what saves less is withdrawn


def tried(trials: Trials) -> tuple[list[TrialRow], list[Note]]:
    """Return what was tried, the smallest peak first, and notes on what is kept and what is withdrawn."""
    with as_before(trials.start):
        trials.begin()
        rows = [trials.attempt(one)[0] for one in tries_of(trials.start, KNOBS)]
    assert trials.outcome is not None
    before = trials.outcome.peak
    rows = sorted(rows, key=lambda row: row.peak if row.peak is not None else float("inf"))
    notes = []
    for row in rows:
        if row.peak is None or not before:
            notes.append(Note(f"withdrawn: {row.change_of}: {row.why or 'its peak cannot be measured'}"))
        elif row.peak <= SMALLER * before:
            what = f"tried: {row.change_of}: peak of a step {quantity(before, 'B')} → {quantity(row.peak, 'B')}; "
            notes.append(Note(f"{what}{told(row)}; write: {row.code}"))
        else:
            notes.append(Note(f"withdrawn: {row.change_of}: the peak of a step stays at {quantity(row.peak, 'B')}"))
    return rows, notes
