"""Try what findings of a profile advise, and keep or withdraw them by what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.features.profile.findings import Weighed
from fxdebug.features.shared.tried_settings.trial import BY_PROCESSORS, TrialRow, Trials, as_before, told, tries_of
from fxdebug.features.shared.tried_settings.verdict import REFUSED, VERDICTS

KNOB_OF = {
    "eager attention": "attention",
    "threads": "threads",
    "subnormal": "subnormal numbers",
    "float16 on the CPU": "dtype of weights",
    "bfloat16 on the CPU": "dtype of weights",
    "training mode": "eval mode",
    "padding": "padding",
    "float64 weights": "dtype of weights",
    "unused results": "hooks",
    "dense gradient": "sparse gradients",
    "anomaly mode": "anomaly mode",
    "recomputation": "recomputation",
    "same in each run": "parametrizations",
}


def tried(found: Sequence[Weighed], trials: Trials) -> tuple[list[Finding], list[TrialRow], list[Note]]:
    """Return the findings that are kept, all trials, and notes on what is withdrawn.

    First is what saves the most of a step: what was measured, or, of a finding that only a change of code can follow
    and that stays a question, what is at stake.
    """
    names = [KNOB_OF[finding.rule] for _, finding in found if finding.rule in KNOB_OF]
    rows: dict[str, TrialRow] = {}
    if names:
        with as_before(trials.start):
            trials.begin()
            for name in dict.fromkeys(names):
                attempts = [trials.attempt(one)[0] for one in tries_of(trials.start, [name])]
                if attempts:
                    rows[name] = min(attempts, key=lambda row: (VERDICTS.index(row.verdict), -(row.gain or 0.0)))
    kept: list[Weighed] = []
    notes = [Note(BY_PROCESSORS)] if trials.by == "processor" else []
    for share, finding in found:
        row = rows.get(KNOB_OF.get(finding.rule, ""))
        if row is None or row.gain is None:
            kept.append((share, finding))
        elif row.verdict != REFUSED:
            advice = f"Tried: {row.change_of}: {told(row)}. Write: {row.code}"
            kept.append((100 * (1 - 1 / row.gain), replace(finding, advice=advice)))
        elif row.why.startswith("cannot tell"):
            kept.append((share, replace(finding, advice=f"{finding.advice} Tried: {told(row)}.")))
        else:
            notes.append(Note(f"withdrawn: {finding.rule} at {finding.call}: {row.change_of}: {told(row)}"))
    return [finding for _, finding in sorted(kept, key=lambda one: -one[0])], list(rows.values()), notes
