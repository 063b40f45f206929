"""The rules of the gradients of one step."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, ERROR, WARNING
from fxdebug.data.rules import CALIBRATED, NOT_FINITE, RuleBook, RuleSpec
from fxdebug.features.shared.gradients.rules import Limits

BOOK = RuleBook(
    "gradients",
    (
        RuleSpec("loss not finite", ERROR, "the loss is NaN or infinite", subject=NOT_FINITE),
        RuleSpec(
            "backward not finite", ERROR, "a backward makes NaN or infinities of finite gradients", subject=NOT_FINITE
        ),
        RuleSpec("loss input", WARNING, "a loss is given what it is not made for: probabilities, other shapes"),
        RuleSpec(
            "recomputed otherwise",
            ERROR,
            "a recomputation draws other numbers, or moves statistics again",
        ),
        RuleSpec("vanishing", ERROR, "gradients shrink from layer to layer", "slope severe_slope decades"),
        RuleSpec("exploding", ERROR, "gradients grow from layer to layer", "slope severe_slope decades"),
        RuleSpec("gradient underflow", WARNING, "gradients are too small for their dtype", "tiny_share null"),
        RuleSpec("update too large", WARNING, "a step of the optimizer changes weights by much", "most_update"),
        RuleSpec("update too small", WARNING, "a step of the optimizer hardly changes weights", "least_update"),
        RuleSpec("no update", WARNING, "a step of the optimizer leaves weights as they were"),
        RuleSpec("zero gradient", WARNING, "gradients are exactly 0, or gone before the step"),
        RuleSpec("no gradient", ERROR, "no gradient reaches any parameter"),
        RuleSpec("not optimised", WARNING, "parameters get gradients and are in no optimizer"),
        RuleSpec("other optimizer", ERROR, "the optimizer has none of the model's parameters"),
        RuleSpec("not registered", ERROR, "something learns that is no parameter of the model"),
        RuleSpec("frozen", ADVICE, "parameters do not ask for gradients"),
        RuleSpec("not called", ADVICE, "parameters get no gradient: their modules did not run"),
        RuleSpec("gradients differ", ERROR, "compare_gradients: the gradients of two steps differ"),
        RuleSpec("not reached", WARNING, "parameters get no gradient although their modules ran"),
    ),
    limits=Limits,
    about={
        "slope": ("", "decades a layer", "Schoenholz 2017, and " + CALIBRATED),
        "severe_slope": ("", "decades a layer from which it is an error", CALIBRATED),
        "decades": ("", "decades over all layers", CALIBRATED),
        "tiny_share": ("%", "elements below the smallest normal number", "Micikevicius 2018"),
        "least_update": ("", "norm of an update over that of the weight", "a rule of thumb is 1e-3"),
        "most_update": ("", "norm of an update over that of the weight", "a rule of thumb is 1e-3"),
        "null": ("", "epsilons of the largest gradient in a module, below which one is zero by structure", CALIBRATED),
    },
)
