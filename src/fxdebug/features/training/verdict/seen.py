"""The training as the rules of the verdict see it, and the form of what they find."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from fxdebug.data.findings import Finding, Severity
from fxdebug.data.measures import enumerated
from fxdebug.features.shared.records.learning import LearningFacts, Names, Sign, StepSigns
from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.verdict.limits import Limits
from fxdebug.features.training.verdict.progress import Progress, losses_of, progress_of

Found: TypeAlias = Iterator[Finding]


@dataclass(frozen=True)
class Seen:
    """A training as the rules see it: ``losses`` in the unit of the constant answer, ``rates`` the highest per step."""

    record: TrainingRecord
    facts: LearningFacts
    progress: Progress
    limits: Limits
    losses: tuple[float, ...]
    rates: tuple[float, ...]

    @property
    def signs(self) -> tuple[StepSigns, ...]:
        """The signs of all steps."""
        return self.record.signs

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.record.steps)

    @property
    def updates(self) -> list[float]:
        """The median update of the matrices over their norm, of each step where it is known."""
        return [one.update for one in self.signs if one.update is not None]

    @property
    def barely_learns(self) -> bool:
        """Has the loss fallen, and is it still near that of a constant answer?"""
        constant = self.progress.constant
        return constant is not None and self.progress.last > self.limits.barely * constant > 0

    @property
    def not_finite_at(self) -> float:
        """The first step whose loss is not finite; infinity where all are."""
        losses = ((one.number, one.loss) for one in self.record.steps if one.loss is not None)
        return next((number for number, loss in losses if not math.isfinite(loss)), math.inf)

    def sign(self, name: str) -> Sign | None:
        """Return what was seen beside the loss under a name, the first of several."""
        return next((one for one in self.facts.beside if one.name == name), None)

    @property
    def is_warming_up(self) -> bool:
        """Is the learning rate at its highest, and still rising?"""
        if not self.rates:
            return False
        now, before = self.rates[-1], self.rates[max(0, len(self.rates) - 10)]
        return now >= 0.999 * max(self.rates) and self.rates[0] < 0.5 * now and now > 1.001 * before


def seen_of(record: TrainingRecord, limits: Limits) -> Seen:
    """Return a training as the rules see it."""
    rates = tuple([max(step.rates) for step in record.steps if step.rates])
    return Seen(
        record,
        record.learning or LearningFacts(0),
        progress_of(record, limits),
        limits,
        tuple(losses_of(record)),
        rates,
    )


def found(
    rule: str, severity: Severity, what: str, advice: str, *, path: str = "", op: str = "",
    measured: float | None = None, threshold: float | None = None, others: tuple[str, ...] = (),
) -> Finding:  # fmt: skip
    """Return what a rule found; ``path`` is the module, ``op`` the parameter or the function."""
    return Finding(
        rule,
        severity,
        path,
        f"{path}#0",
        op,
        what,
        measured=measured,
        threshold=threshold,
        advice=advice,
        others=others,
    )


def listed(names: Names, most: int = 3) -> str:
    """Return names as a text: ``a, b and 2 more``."""
    some = ", ".join(names.some[:most])
    left = names.count - min(most, len(names.some))
    return f"{some} and {left} more" if left else some


BEFORE = "what is before "  # of a function that no module is: in front of the path of the next one


def places(paths: Iterable[str], most: int = 3) -> str:
    """Return modules as a text; what lies before one of them is left out where another is named.

    >>> places(["encoder.1", "what is before encoder.2"])
    'encoder.1'
    >>> places(["0", "2"]), places(["what is before 2"])
    ('module 0 and module 2', 'what is before module 2')
    """
    all_of = list(paths)
    own = [one for one in all_of if not one.startswith(BEFORE)] or all_of
    told = [_place(one) for one in own[:most]]
    if len(own) > most:
        told.append(f"{len(own) - most} more")
    return enumerated(told) if told else ""


def _place(path: str) -> str:
    """Return the path of a module, which of a Sequential is no more than a number."""
    before, own = (BEFORE, path.removeprefix(BEFORE)) if path.startswith(BEFORE) else ("", path)
    return f"{before}module {own}" if own.replace(".", "").isdigit() else path


def path_of(name: str) -> str:
    """Return the module that has a parameter."""
    return name.rpartition(".")[0]


def middle(numbers: list[float]) -> float | None:
    """Return the median, ``None`` of nothing."""
    return median(numbers) if numbers else None


def g(number: float | None) -> str:
    """Return a number in three digits."""
    return "n/a" if number is None else f"{number:.3g}"
