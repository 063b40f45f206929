"""The rules of the state of a model."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, ERROR, WARNING
from fxdebug.data.rules import RuleBook, RuleSpec

BOOK = RuleBook(
    "state",
    (
        RuleSpec(
            "buffer", ERROR, "a buffer has numbers that its module never makes: memory that nothing was written to"
        ),
        RuleSpec("not loaded", WARNING, "weights are zero or as drawn where others are trained, or in a plain list"),
        RuleSpec("statistics", WARNING, "batch norm's statistics are as at their start, or move where nothing learns"),
        RuleSpec("mode", WARNING, "a module is in training mode inside of one that is in evaluation"),
        RuleSpec("broken tie", WARNING, "weights that are to be one tensor are two"),
        RuleSpec("repeated module", WARNING, "one module stands several times in a list, and runs once after itself"),
        RuleSpec("optimizer epsilon", ERROR, "the optimizer's epsilon is 0 in the dtype of its weights"),
        RuleSpec("decay", ADVICE, "weight decay pulls norms and biases to zero"),
    ),
)
