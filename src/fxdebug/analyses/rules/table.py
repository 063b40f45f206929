"""The table of all rules that make findings, and of their thresholds: defaults are those of the ``Limits``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fxdebug.analyses.activations.findings import ActivationLimits
from fxdebug.analyses.attention.findings import AttentionLimits
from fxdebug.analyses.cost import profile_rules
from fxdebug.analyses.gradients import rules as gradient_rules
from fxdebug.analyses.numbers.dtype_limits import NumberLimits
from fxdebug.analyses.numbers.precision_loss import GROWTH, LOST_ROUNDINGS
from fxdebug.analyses.weights.initialisation import WeightLimits
from fxdebug.data.findings import ADVICE, ERROR, NOT_LOOKED_AT, WARNING, Severity
from fxdebug.data.measures import Unit
from fxdebug.operators.dtypes import FLOATS
from fxdebug.plugins.installed import plugin_rules

NUMBERS: Final = "numbers"
ACTIVATIONS: Final = "activations"
ATTENTION: Final = "attention"
WEIGHTS: Final = "weights"
GRADIENTS: Final = "gradients"
TRAINING: Final = "training"
PROFILE: Final = "profile"
SHADOW: Final = "shadow"
PLUGINS: Final = "plugins"

# In the order in which findings of equal severity are told. The last two are done only when they are asked for.
ANALYSES = (NUMBERS, TRAINING, GRADIENTS, WEIGHTS, ATTENTION, ACTIVATIONS, PLUGINS, PROFILE, SHADOW)
ASKED_FOR = (PROFILE, SHADOW)

NOT_FINITE: Final = "not finite"
DEAD: Final = "dead"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: ``id`` is that of its analysis and its name, ``activations.dead unit``.

    ``severity`` is the gravest that it gives. ``thresholds`` are names in :data:`THRESHOLDS`. Findings of several
    analyses about one ``subject`` at one place are told once.
    """

    analysis: str
    name: str
    severity: Severity
    about: str
    thresholds: tuple[str, ...] = ()
    subject: str = ""

    @property
    def id(self) -> str:
        """The name with the analysis before it."""
        return f"{self.analysis}.{self.name}"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold: ``name`` is that of its analysis and of the field in its ``Limits``, ``activations.outlier``.

    ``source`` tells where the number comes from. One that is not ``settable`` is part of the method.
    """

    name: str
    default: float
    unit: Unit
    about: str
    source: str = ""
    settable: bool = True


LIMITS: Mapping[str, type[Any]] = {
    NUMBERS: NumberLimits,
    GRADIENTS: gradient_rules.Limits,
    ATTENTION: AttentionLimits,
    ACTIVATIONS: ActivationLimits,
    WEIGHTS: WeightLimits,
    PROFILE: profile_rules.Limits,
}

_OURS = "calibrated on this project's models"
_ABOUT: Mapping[str, tuple[Unit, str, str]] = {
    "numbers.headroom": ("", "times that a narrow result is below its dtype's largest number", "two doublings"),
    "numbers.lost_share": ("", "share of elements that became 0, for advice", _OURS),
    "numbers.most_lost": ("", "share of the nonzero elements that became 0, for a warning", _OURS),
    "numbers.subnormal_share": ("", "share of the nonzero elements that are subnormal", _OURS),
    "activations.outlier": ("", "robust deviations from which an element is an outlier in the rows", _OURS),
    "activations.large_share": ("", "share of tokens with |x| of at least 6", "LLM.int8, Dettmers 2022"),
    "activations.times_median": ("", "rms over that of the median channel", _OURS),
    "activations.massive": ("", "|x|", "Sun 2024"),
    "activations.times_elements": ("", "|x| over the median |x|", "Sun 2024"),
    "activations.saturated": ("", "share of elements within a hundredth of a bound", _OURS),
    "activations.samples": ("", "samples from which an inactive unit counts as dead", _OURS),
    "activations.below": ("", "deviations below 0 from which a unit is dead on fewer samples", "normal distribution"),
    "activations.fewest": ("", "samples below which no unit is dead", "rule of three: active on less than 2.3 %"),
    "activations.dormant": ("", "mean |x| relative to that of the layer, in the rows", "Sokar 2023"),
    "attention.sink": ("", "mean weight on the first token", "Xiao 2024"),
    "attention.times_even": ("", "that weight over what even weights give it", _OURS),
    "attention.even": ("", "1 minus the normalised entropy", "rounding of float32"),
    "attention.unused": ("", "norm that a head adds over the median of its layer", "rounding of float32"),
    "attention.leak": ("", "weight on tokens that must not be seen", "rounding of float32"),
    "weights.errors": ("", "standard errors between a deviation and its scheme's", _OURS),
    "weights.ratio": ("", "relative difference between the two", _OURS),
    "gradients.slope": ("", "decades a layer", "Schoenholz 2017, and " + _OURS),
    "gradients.severe_slope": ("", "decades a layer from which it is an error", _OURS),
    "gradients.decades": ("", "decades over all layers", _OURS),
    "gradients.tiny_share": ("%", "elements below the smallest normal number", "Micikevicius 2018"),
    "gradients.least_update": ("", "norm of an update over that of the weight", "a rule of thumb is 1e-3"),
    "gradients.most_update": ("", "norm of an update over that of the weight", "a rule of thumb is 1e-3"),
    "gradients.null": ("", "epsilons of the largest gradient in a module, below which one is zero by structure", _OURS),
    "profile.slow_share": ("%", "share of the run", _OURS),
    "profile.slow_ratio": ("", "time over the median of equal calls", _OURS),
    "profile.slow_seconds": ("s", "time above the median of equal calls", _OURS),
    "profile.idle_seconds": ("s", "time outside of torch's functions", _OURS),
    "profile.idle_share": ("%", "that time over the call's own", _OURS),
    "profile.sync_count": ("", "reads of single numbers at one line", _OURS),
    "profile.wide_share": ("%", "share of the time or bytes in float64", _OURS),
    "profile.eager_share": ("%", "share of the time in attention that is written out", _OURS),
}


def _settable() -> list[Threshold]:
    found = []
    for analysis, limits in LIMITS.items():
        for field in fields(limits):
            unit, about, source = _ABOUT[f"{analysis}.{field.name}"]
            found.append(Threshold(f"{analysis}.{field.name}", field.default, unit, about, source))  # type: ignore[arg-type]
    return found


_FIXED = (
    Threshold("numbers.float16_max", FLOATS["float16"].max, "", "|x|", "IEEE 754", False),
    Threshold(
        "numbers.digits", math.sqrt(FLOATS["float32"].eps), "",
        "result over its operands: √eps of the dtype, here of float32", "Higham 2002", False,
    ),
    Threshold("shadow.roundings", LOST_ROUNDINGS, "", "roundings of the dtype", _OURS, False),
    Threshold("shadow.growth", GROWTH, "", "error over that of the operands", _OURS, False),
)  # fmt: skip
THRESHOLDS: dict[str, Threshold] = {threshold.name: threshold for threshold in (*_settable(), *_FIXED)}


def _rule(analysis: str, name: str, severity: Severity, about: str, thresholds: str = "", subject: str = "") -> Rule:
    return Rule(
        analysis, name, severity, about, tuple([f"{analysis}.{field}" for field in thresholds.split()]), subject
    )


_RULES = (
    _rule(NUMBERS, "nan", ERROR, "an operation makes NaN of operands without", subject=NOT_FINITE),
    _rule(NUMBERS, "inf", ERROR, "an operation makes an infinity of finite operands", subject=NOT_FINITE),
    _rule(NUMBERS, "input", ERROR, "an input has NaN or infinities before the run", subject=NOT_FINITE),
    _rule(NUMBERS, "weight", ERROR, "a weight has NaN or infinities before the run", subject=NOT_FINITE),
    _rule(NUMBERS, "uninitialised", ERROR, "memory is read before it is written", subject=NOT_FINITE),
    _rule(NUMBERS, "headroom", WARNING, "a result in few bits is close to overflow", "headroom"),
    _rule(NUMBERS, "underflow", WARNING, "numbers became 0", "lost_share most_lost"),
    _rule(NUMBERS, "cancellation", WARNING, "digits cancel in a difference of rounded numbers", "digits"),
    _rule(NUMBERS, "subnormal", ADVICE, "saved results are so small that digits are missing", "subnormal_share"),
    _rule(NUMBERS, "float16", ADVICE, "a result would overflow in float16", "float16_max"),
    _rule(TRAINING, "loss not finite", ERROR, "the loss of a step is NaN or infinite", subject=NOT_FINITE),
    _rule(TRAINING, "gradient not finite", ERROR, "a gradient of a step is NaN or infinite", subject=NOT_FINITE),
    _rule(TRAINING, "exception", ERROR, "a step raised"),
    _rule(TRAINING, "loss spike", WARNING, "the loss rises far above those before"),
    _rule(TRAINING, "steps skipped", ERROR, "a GradScaler leaves out step after step"),
    _rule(TRAINING, "no step", WARNING, "the model runs, and no optimizer makes a step"),
    _rule(TRAINING, "no gradient", ERROR, "no gradient reaches any parameter, in step after step"),
    _rule(TRAINING, "not optimised", WARNING, "parameters get gradients and are in no optimizer"),
    _rule(TRAINING, "other optimizer", ERROR, "the optimizer has none of the model's parameters"),
    _rule(TRAINING, "not registered", ERROR, "something learns that is no parameter of the model"),
    _rule(TRAINING, "maximizes", WARNING, "the loss rises, and the optimizer was made to maximise it"),
    _rule(TRAINING, "gradient spike", WARNING, "the gradients' norm rises far above those before"),
    _rule(GRADIENTS, "loss not finite", ERROR, "the loss is NaN or infinite", subject=NOT_FINITE),
    _rule(
        GRADIENTS, "backward not finite", ERROR, "a backward makes NaN or infinities of finite gradients",
        subject=NOT_FINITE,
    ),
    _rule(GRADIENTS, "loss input", WARNING, "a loss is given what it is not made for: probabilities, other shapes"),
    _rule(GRADIENTS, "vanishing", ERROR, "gradients shrink from layer to layer", "slope severe_slope decades"),
    _rule(GRADIENTS, "exploding", ERROR, "gradients grow from layer to layer", "slope severe_slope decades"),
    _rule(GRADIENTS, "gradient underflow", WARNING, "gradients are too small for their dtype", "tiny_share null"),
    _rule(GRADIENTS, "update too large", WARNING, "a step of the optimizer changes weights by much", "most_update"),
    _rule(GRADIENTS, "update too small", WARNING, "a step of the optimizer hardly changes weights", "least_update"),
    _rule(GRADIENTS, "no update", WARNING, "a step of the optimizer leaves weights as they were"),
    _rule(GRADIENTS, "zero gradient", WARNING, "gradients are exactly 0, or gone before the step"),
    _rule(GRADIENTS, "no gradient", ERROR, "no gradient reaches any parameter"),
    _rule(GRADIENTS, "not optimised", WARNING, "parameters get gradients and are in no optimizer"),
    _rule(GRADIENTS, "other optimizer", ERROR, "the optimizer has none of the model's parameters"),
    _rule(GRADIENTS, "not registered", ERROR, "something learns that is no parameter of the model"),
    _rule(GRADIENTS, "frozen", ADVICE, "parameters do not ask for gradients"),
    _rule(GRADIENTS, "not called", ADVICE, "parameters get no gradient: their modules did not run"),
    _rule(GRADIENTS, "not reached", WARNING, "parameters get no gradient although their modules ran"),
    _rule(WEIGHTS, "weight not finite", ERROR, "a weight has NaN or infinities", subject=NOT_FINITE),
    _rule(WEIGHTS, "initialisation", WARNING, "a weight was drawn on another scale than the others", "errors ratio"),
    _rule(WEIGHTS, "dead unit", WARNING, "all weights of an output unit are 0", subject=DEAD),
    _rule(WEIGHTS, "unread input", WARNING, "all weights of an input are 0"),
    _rule(ATTENTION, "mask added", WARNING, "a mask of floats has 0 and 1, which are added to the scores"),
    _rule(ATTENTION, "padding seen", ERROR, "queries attend to padding", "leak"),
    _rule(ATTENTION, "future seen", ERROR, "queries attend to later tokens", "leak"),
    _rule(ATTENTION, "unused head", WARNING, "a head adds nothing to the output", "unused"),
    _rule(ATTENTION, "uniform head", WARNING, "a head gives every key the same weight", "even"),
    _rule(ATTENTION, "attention sink", ADVICE, "a head looks mostly at the first token", "sink times_even"),
    _rule(ACTIVATIONS, "dead unit", WARNING, "a unit is never active", "samples below fewest", subject=DEAD),
    _rule(ACTIVATIONS, "saturated", WARNING, "a sigmoid or tanh is mostly at its bounds", "saturated"),
    _rule(ACTIVATIONS, "outlier channel", ADVICE, "a channel is far larger than the others",
          "large_share times_median"),
    _rule(ACTIVATIONS, "massive activation", ADVICE, "one element is far larger than all others",
          "massive times_elements"),
    _rule(PROFILE, "slow", WARNING, "a call takes far longer than equal calls", "slow_ratio slow_share"),
    _rule(PROFILE, "outside torch", WARNING, "a call's own time is not torch's", "idle_seconds idle_share"),
    _rule(PROFILE, "float64", WARNING, "a narrower model computes in float64", "wide_share"),
    _rule(PROFILE, "reads numbers", ADVICE, "a line reads numbers out of tensors again and again", "sync_count"),
    _rule(PROFILE, "eager attention", ADVICE, "attention is not one fused operation", "eager_share"),
    _rule(SHADOW, "cancellation", ERROR, "the error grows where operands cancel", "roundings growth"),
    _rule(SHADOW, "precision", ERROR, "the error grows at an operation", "roundings growth"),
    *[_rule(name, NOT_LOOKED_AT, WARNING, "the analysis failed, or was asked for and cannot be done")
      for name in ANALYSES],
)  # fmt: skip
RULES: dict[str, Rule] = {rule.id: rule for rule in _RULES}


def every_rule() -> dict[str, Rule]:
    """Return our rules and those of plug-ins, by id."""
    others = [Rule(PLUGINS, name, severity, about) for name, (severity, about) in plugin_rules().items()]
    return RULES | {rule.id: rule for rule in others}


def rule_of(analysis: str, name: str) -> Rule | None:
    """Return the rule of an analysis by its name; a watched training also tells by the rules about gradients.

    >>> rule_of("training", "vanishing").id, rule_of("weights", "vanishing")
    ('gradients.vanishing', None)
    """
    return every_rule().get(f"{analysis}.{name}") or (
        RULES.get(f"{GRADIENTS}.{name}") if analysis == TRAINING else None
    )
