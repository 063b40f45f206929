"""Try what findings of a profile advise, and keep or withdraw them by what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.features.shared.tried_settings.trial import BY_PROCESSORS, TrialRow, Trials, as_before, told, tries_of
from fxdebug.features.shared.tried_settings.verdict import REFUSED

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


def tried(findings: Sequence[Finding], trials: Trials) -> tuple[list[Finding], list[TrialRow], list[Note]]:
    """Return the findings that are kept, those with a measured gain first; all trials; notes on what is withdrawn.

    Findings that only a change of code can follow are questions, and stay so.
    """
    names = [KNOB_OF[finding.rule] for finding in findings if finding.rule in KNOB_OF]
    rows: dict[str, TrialRow] = {}
    if names:
        with as_before(trials.start):
            trials.begin()
            for name in dict.fromkeys(names):
                attempts = [trials.attempt(one)[0] for one in tries_of(trials.start, [name])]
                if attempts:
                    rows[name] = max(attempts, key=lambda row: (row.verdict != REFUSED, row.gain or 0.0))
    kept: list[tuple[float, Finding]] = []
    notes = [Note(BY_PROCESSORS)] if trials.by == "processor" else []
    for finding in findings:
        row = rows.get(KNOB_OF.get(finding.rule, ""))
        if row is None or row.gain is None:
            kept.append((0.0, finding))
        elif row.verdict != REFUSED:
            kept.append((row.gain, replace(finding, advice=f"Tried: {row.change_of}: {told(row)}. Write: {row.code}")))
        elif row.why.startswith("cannot tell"):
            kept.append((0.0, replace(finding, advice=f"{finding.advice} Tried: {told(row)}.")))
        else:
            notes.append(Note(f"withdrawn: {finding.rule} at {finding.call}: {row.change_of}: {told(row)}"))
    return [finding for _, finding in sorted(kept, key=lambda one: -one[0])], list(rows.values()), notes
