"""The rules of weights."""

from __future__ import annotations

from fxdebug.data.findings import ERROR, WARNING
from fxdebug.data.rules import CALIBRATED, DEAD, NOT_FINITE, RuleBook, RuleSpec
from fxdebug.features.weights.initialisation import WeightLimits

BOOK = RuleBook(
    "weights",
    (
        RuleSpec("weight not finite", ERROR, "a weight has NaN or infinities", subject=NOT_FINITE),
        RuleSpec("initialisation", WARNING, "a weight was drawn on another scale than the others", "errors ratio"),
        RuleSpec("dead unit", WARNING, "all weights of an output unit are 0", subject=DEAD),
        RuleSpec("unread input", WARNING, "all weights of an input are 0"),
    ),
    limits=WeightLimits,
    about={
        "errors": ("", "standard errors between a deviation and its scheme's", CALIBRATED),
        "ratio": ("", "relative difference between the two", CALIBRATED),
    },
)
