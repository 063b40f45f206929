"""The rules of activations."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, WARNING
from fxdebug.data.rules import CALIBRATED, DEAD, RuleBook, RuleSpec
from fxdebug.features.shared.units.findings import ActivationLimits

BOOK = RuleBook(
    "activations",
    (
        RuleSpec("dead unit", WARNING, "a unit is never active", "samples below fewest", subject=DEAD),
        RuleSpec("saturated", WARNING, "a sigmoid or tanh is mostly at its bounds", "saturated"),
        RuleSpec("outlier channel", ADVICE, "a channel is far larger than the others", "large_share times_median"),
        RuleSpec("massive activation", ADVICE, "one element is far larger than all others", "massive times_elements"),
    ),
    limits=ActivationLimits,
    about={
        "outlier": ("", "robust deviations from which an element is an outlier in the rows", CALIBRATED),
        "large_share": ("", "share of tokens with |x| of at least 6", "LLM.int8, Dettmers 2022"),
        "times_median": ("", "rms over that of the median channel", CALIBRATED),
        "massive": ("", "|x|", "Sun 2024"),
        "times_elements": ("", "|x| over the median |x|", "Sun 2024"),
        "saturated": ("", "share of elements within a hundredth of a bound", CALIBRATED),
        "samples": ("", "samples from which an inactive unit counts as dead", CALIBRATED),
        "below": ("", "deviations below 0 from which a unit is dead on fewer samples", "normal distribution"),
        "fewest": ("", "samples below which no unit is dead", "rule of three: active on less than 2.3 %"),
        "dormant": ("", "mean |x| relative to that of the layer, in the rows", "Sokar 2023"),
    },
)
