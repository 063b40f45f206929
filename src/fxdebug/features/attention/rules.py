"""The rules of attention."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, ERROR, WARNING
from fxdebug.data.rules import CALIBRATED, RuleBook, RuleSpec
from fxdebug.features.attention.findings import AttentionLimits

BOOK = RuleBook(
    "attention",
    (
        RuleSpec("mask added", WARNING, "a mask of floats has 0 and 1, which are added to the scores"),
        RuleSpec("padding seen", ERROR, "queries attend to padding", "leak"),
        RuleSpec("future seen", ERROR, "queries attend to later tokens", "leak"),
        RuleSpec("no key seen", WARNING, "the mask hides every key from a query"),
        RuleSpec("unused head", WARNING, "a head adds nothing to the output", "unused"),
        RuleSpec("uniform head", WARNING, "a head gives every key the same weight", "even"),
        RuleSpec("attention sink", ADVICE, "a head looks mostly at the first token", "sink times_even"),
    ),
    limits=AttentionLimits,
    about={
        "sink": ("", "mean weight on the first token", "Xiao 2024"),
        "times_even": ("", "that weight over what even weights give it", CALIBRATED),
        "even": ("", "1 minus the normalised entropy", "rounding of float32"),
        "unused": ("", "norm that a head adds over the median of its layer", "rounding of float32"),
        "leak": ("", "weight on tokens that must not be seen", "rounding of float32"),
    },
)
