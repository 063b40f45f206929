"""The rules of weights."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, ERROR, WARNING
from fxdebug.data.rules import CALIBRATED, DEAD, NOT_FINITE, RuleBook, RuleSpec
from fxdebug.features.weights.initialisation import WeightLimits

BOOK = RuleBook(
    "weights",
    (
        RuleSpec("weight not finite", ERROR, "a weight has NaN or infinities", subject=NOT_FINITE),
        RuleSpec("initialisation", WARNING, "a weight was drawn on another scale than the others", "errors ratio"),
        RuleSpec("dead unit", WARNING, "all weights of an output unit are 0", subject=DEAD),
        RuleSpec("unread input", WARNING, "all weights of an input are 0"),
        RuleSpec("not in model", WARNING, "a checkpoint has names that the model does not have"),
        RuleSpec("not in file", WARNING, "the model has weights that its checkpoint, or any, does not have"),
        RuleSpec("not in second", ADVICE, "a second checkpoint lacks weights of the first, and has the others"),
        RuleSpec("unlike file", WARNING, "a few weights of the model are not those of its checkpoint"),
        RuleSpec("broken tie", WARNING, "a weight that one side ties to another is one of its own on the other"),
        RuleSpec("statistics moved", WARNING, "running statistics changed where weights did not"),
        RuleSpec("statistics late", WARNING, "the second checkpoint has running statistics of fewer batches"),
        RuleSpec("statistics not copied", WARNING, "the second checkpoint has running statistics as at their start"),
        RuleSpec("table changed", WARNING, "a buffer that nothing trains changed"),
        RuleSpec("only shrank", ADVICE, "weights changed by a factor alone"),
        RuleSpec("adapter merged", WARNING, "a weight changed by its own adapter, which is there still"),
        RuleSpec("as drawn", WARNING, "the second model is as it was drawn, and the first is trained"),
        RuleSpec("no average", ADVICE, "all weights of the second differ as those of no average of the first do"),
    ),
    limits=WeightLimits,
    about={
        "errors": ("", "standard errors between a deviation and its scheme's", CALIBRATED),
        "ratio": ("", "relative difference between the two", CALIBRATED),
    },
)
