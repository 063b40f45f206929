"""The rules of a profile."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, WARNING
from fxdebug.data.rules import CALIBRATED, RuleBook, RuleSpec
from fxdebug.features.profile.findings import Limits

BOOK = RuleBook(
    "profile",
    (
        RuleSpec("slow", WARNING, "a call takes far longer than equal calls", "slow_ratio slow_share"),
        RuleSpec("outside torch", WARNING, "a call's own time is not torch's", "idle_seconds idle_share"),
        RuleSpec("float64", WARNING, "a narrower model computes in float64", "wide_share"),
        RuleSpec("reads numbers", ADVICE, "a line reads numbers out of tensors again and again", "sync_count"),
        RuleSpec("eager attention", ADVICE, "attention is not one fused operation", "eager_share"),
    ),
    limits=Limits,
    about={
        "slow_share": ("%", "share of the run", CALIBRATED),
        "slow_ratio": ("", "time over the median of equal calls", CALIBRATED),
        "slow_seconds": ("s", "time above the median of equal calls", CALIBRATED),
        "idle_seconds": ("s", "time outside of torch's functions", CALIBRATED),
        "idle_share": ("%", "that time over the call's own", CALIBRATED),
        "sync_count": ("", "reads of single numbers at one line", CALIBRATED),
        "wide_share": ("%", "share of the time or bytes in float64", CALIBRATED),
        "eager_share": ("%", "share of the time in attention that is written out", CALIBRATED),
    },
)
