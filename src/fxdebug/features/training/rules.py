"""The rules of a watched training."""

from __future__ import annotations

from fxdebug.data.findings import ERROR, WARNING
from fxdebug.data.rules import NOT_FINITE, RuleBook, RuleSpec

BOOK = RuleBook(
    "training",
    (
        RuleSpec("loss not finite", ERROR, "the loss of a step is NaN or infinite", subject=NOT_FINITE),
        RuleSpec("gradient not finite", ERROR, "a gradient of a step is NaN or infinite", subject=NOT_FINITE),
        RuleSpec("exception", ERROR, "a step raised"),
        RuleSpec("loss spike", WARNING, "the loss rises far above those before"),
        RuleSpec("steps skipped", ERROR, "a GradScaler leaves out step after step"),
        RuleSpec("no step", WARNING, "the model runs, and no optimizer makes a step"),
        RuleSpec("no gradient", ERROR, "no gradient reaches any parameter, in step after step"),
        RuleSpec("not optimised", WARNING, "parameters get gradients and are in no optimizer"),
        RuleSpec("other optimizer", ERROR, "the optimizer has none of the model's parameters"),
        RuleSpec("not registered", ERROR, "something learns that is no parameter of the model"),
        RuleSpec("maximizes", WARNING, "the loss rises, and the optimizer was made to maximise it"),
        RuleSpec("gradient spike", WARNING, "the gradients' norm rises far above those before"),
    ),
)
