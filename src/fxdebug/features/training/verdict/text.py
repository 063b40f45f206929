"""The verdict as text, and as JSON."""

from __future__ import annotations

import json
import shutil

from fxdebug.cells import wrapped
from fxdebug.data.findings import number_as_json
from fxdebug.features.training.verdict.judge import Verdict
from fxdebug.printable import printable, printable_json


def verdict_text(verdict: Verdict, width: int | None = None) -> str:
    """Return the sentence, and further findings, the gravest first."""
    width = shutil.get_terminal_size().columns if width is None else width
    lines = wrapped(printable(verdict.sentence), width)
    for finding in verdict.findings:
        if finding.what not in verdict.sentence:
            lines += ["", *wrapped(printable(f"also ({finding.severity}): {finding.what}. {finding.advice}"), width)]
    return "\n".join(lines)


def verdict_json(verdict: Verdict) -> str:
    """Return the verdict as JSON: state, sentence, rule, the losses, and all findings."""
    content = {
        "state": verdict.state,
        "sentence": verdict.sentence,
        "rule": verdict.rule,
        "steps": verdict.steps,
        **{name: number_as_json(getattr(verdict, name)) for name in ("first", "last", "constant")},
        "findings": [finding.as_json() for finding in verdict.findings],
    }
    return printable_json(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
