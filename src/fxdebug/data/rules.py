"""Rules that make findings, and their thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from fxdebug.data.findings import NOT_LOOKED_AT, WARNING, Severity
from fxdebug.data.measures import Unit

NOT_FINITE: Final = "not finite"  # subjects that rules of several analyses tell of
DEAD: Final = "dead"
CALIBRATED: Final = "calibrated on this project's models"  # the source of a threshold that no paper gives


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: ``id`` is that of its analysis and its name, ``activations.dead unit``.

    ``severity`` is the gravest that it gives. ``thresholds`` are names of :class:`Threshold`. Findings of several
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


@dataclass(frozen=True)
class RuleSpec:
    """A rule of a rule book: as :class:`Rule`, with the fields of the book's ``limits`` that it reads."""

    name: str
    severity: Severity
    about: str
    limits: str = ""
    subject: str = ""


@dataclass(frozen=True)
class RuleBook:
    """The rules of one analysis.

    ``limits`` is a frozen dataclass whose fields are the thresholds that users may set; ``about`` has the unit, the
    meaning and the source of each. ``fixed`` are thresholds that are part of the method.

    >>> book = RuleBook("widths", (RuleSpec("wide layer", "error", "a layer is wide"),))
    >>> [rule.id for rule in book.every_rule()]
    ['widths.wide layer', 'widths.not looked at']
    """

    analysis: str
    rules: tuple[RuleSpec, ...]
    limits: type[Any] | None = None
    about: Mapping[str, tuple[Unit, str, str]] = field(default_factory=dict)
    fixed: tuple[Threshold, ...] = ()

    def every_rule(self) -> list[Rule]:
        """Return the rules; the last one, which every analysis has, is that the analysis could not run."""
        specs = (*self.rules, RuleSpec(NOT_LOOKED_AT, WARNING, _NOT_DONE))
        return [
            Rule(
                self.analysis, one.name, one.severity, one.about,
                tuple([f"{self.analysis}.{name}" for name in one.limits.split()]), one.subject,
            )
            for one in specs
        ]  # fmt: skip

    def settable(self) -> list[Threshold]:
        """Return the thresholds that users may set."""
        found = []
        for one in () if self.limits is None else fields(self.limits):
            unit, about, source = self.about[one.name]
            found.append(Threshold(f"{self.analysis}.{one.name}", one.default, unit, about, source))  # type: ignore[arg-type]
        return found


_NOT_DONE = "the analysis failed, or was asked for and cannot be done"
