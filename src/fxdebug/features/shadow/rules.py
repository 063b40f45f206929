"""The rules of a run in float64 beside the model."""

from __future__ import annotations

from fxdebug.data.findings import ERROR
from fxdebug.data.rules import CALIBRATED, RuleBook, RuleSpec, Threshold
from fxdebug.features.shadow.precision_loss import GROWTH, LOST_ROUNDINGS

BOOK = RuleBook(
    "shadow",
    (
        RuleSpec("cancellation", ERROR, "the error grows where operands cancel", "roundings growth"),
        RuleSpec("precision", ERROR, "the error grows at an operation", "roundings growth"),
    ),
    fixed=(
        Threshold("shadow.roundings", LOST_ROUNDINGS, "", "roundings of the dtype", CALIBRATED, False),
        Threshold("shadow.growth", GROWTH, "", "error over that of the operands", CALIBRATED, False),
    ),
)
