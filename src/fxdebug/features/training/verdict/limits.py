"""The thresholds of the verdict, each with where its number comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fxdebug.data.measures import Unit

MEASURED = "measured on the loops of tools/bench_learn.py"


@dataclass(frozen=True)
class Limits:
    """The thresholds of the verdict on a training."""

    steps: float = 20
    learned: float = 0.95
    halved: float = 0.5
    rises: float = 3.0
    clipped: float = 1e-2
    alike: float = 3000
    shifted: float = 0.98
    within: float = 0.1
    unmoved: float = 0.5
    slope: float = 0.3
    spent: float = 0.3
    decay: float = 1e-3
    strong_decay: float = 0.3
    large_input: float = 20.0
    small_input: float = 0.02
    large_update: float = 0.05
    largest_update: float = 0.1
    small_update: float = 3e-5
    chance: float = 0.02
    plateau: float = 100
    waiting: float = 0.5
    unequal: float = 0.9
    barely: float = 0.8


ABOUT: Mapping[str, tuple[Unit, str, str]] = {
    "steps": (
        "",
        "steps before anything is said about the loss",
        "a rank test of two quarters needs five numbers each",
    ),
    "learned": ("", "last loss over that of a constant answer, below which it learns", MEASURED),
    "halved": ("", "the same, below which no rank test is needed", MEASURED),
    "rises": ("", "last loss over the first, above which it rises", MEASURED),
    "clipped": ("", "norm used over norm that arrived", "healthy clipping at 0.1 has 0.1 to 0.3: " + MEASURED),
    "alike": ("", "targets of one value that make it sure", "rule of three: others are rarer than 0.1 %"),
    "shifted": ("", "share of targets that are an input nearby", "by chance 7 % in text: " + MEASURED),
    "within": ("", "entropy of the targets of a batch over that of all", MEASURED),
    "unmoved": (
        "",
        "share of elements with a gradient that a step leaves as they are",
        "half a unit in the last place",
    ),
    "slope": ("", "decades by which gradients shrink in each layer", "docs/gradients.md, of 10 layers of sigmoid"),
    "spent": ("", "share of steps with a learning rate under 1 % of its highest", "a cosine has 6 %, a line 1 %"),
    "decay": ("", "weight decay times learning rate", "AdamW at 0.1 and 6e-4 has 6e-5, LARS 5e-4"),
    "strong_decay": ("", "weight decay", "0.01 to 0.1 is usual"),
    "large_input": ("", "root mean square of the inputs", "pixels / 255 and standardised inputs have 0.3 to 1"),
    "small_input": ("", "the same, at least", "pixels / 255 and standardised inputs have 0.3 to 1"),
    "large_update": (
        "",
        "median update over weight in the first ten steps",
        "healthy loops have up to 4 %: " + MEASURED,
    ),
    "largest_update": ("", "largest of them", "healthy loops have 4 to 10 %: " + MEASURED),
    "small_update": ("", "median update over weight", "1e-3 is usual (Karpathy 2019, A Recipe for Training)"),
    "chance": ("", "how often targets at random fit as well", "two of 99 draws"),
    "plateau": ("", "steps at the constant answer before the data is doubted", MEASURED),
    "barely": ("", "last loss over that of a constant answer, above which hardly anything is learned", MEASURED),
    "unequal": ("", "share of the targets that one class has", "rarer ones have a tenth of the gradient"),
    "waiting": ("", "share of a step before its forward begins", "more than half"),
}
