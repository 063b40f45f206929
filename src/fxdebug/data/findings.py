"""A finding of a rule: something wrong or worth knowing at one operation or call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from fxdebug.brief import brief
from fxdebug.data.measures import Unit
from fxdebug.data.values import Value
from fxdebug.printable import printable

Severity: TypeAlias = Literal["error", "warning", "advice"]

ERROR: Final = "error"
WARNING: Final = "warning"
ADVICE: Final = "advice"
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@brief
@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong or worth knowing at one operation or call. Every analysis reports in this form.

    ``rule`` is the name of the rule that found it. For the numbers of a run: ``nan`` or ``inf`` (made here), ``input``
    or ``weight`` (there before the run), ``uninitialised`` (memory read before it was written), ``headroom``,
    ``underflow``, ``subnormal``, ``cancellation``, ``float16``, ``precision`` (digits lost, found by
    ``fxdebug.shadow``).
    ``severity``: ``error`` (the results are wrong, or the run raised), ``warning``, ``advice``.
    ``path`` is the module's path; ``call`` and ``node`` are the ids of the call and of the operation, for
    ``trace.node``. ``op`` is the operation's name, or the module's class where a call's operations are not known.
    ``source`` is the user's line. ``what`` tells in a sentence what happened, ``advice`` what to do.
    ``measured`` is the number that the rule compared with ``threshold``, both in ``unit``; ``None`` for a rule without
    a number. ``value`` is the result and ``inputs`` are the operands, with statistics. ``reached`` counts the later
    operations with it in their results; ``output`` tells whether the run returned it. ``absorbed`` names the operations
    with it in an input but not in the result. ``others`` are nodes with the same finding.
    ``analysis`` names the analysis that made it, or several with commas that found the same.
    """

    rule: str
    severity: Severity
    path: str
    call: str
    op: str
    what: str
    node: str = ""
    source: str | None = None
    measured: float | None = None
    threshold: float | None = None
    unit: Unit = ""
    advice: str = ""
    value: Value | None = None
    inputs: tuple[Value, ...] = ()
    reached: int = 0
    output: bool = False
    absorbed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    analysis: str = ""

    @property
    def kind(self) -> str:
        """The rule, by the name that it had in version 0.1."""
        return self.rule

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return printable(f"{self.severity}: {self.node or self.call}: {self.what}{where}")

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain data: fields by name, values with dtype, shape and statistics."""
        plain = {
            name: getattr(self, name)
            for name in ("kind", "severity", "path", "call", "op", "node", "source", "what", "reached", "output")
        }
        rule = {"rule": self.rule, "measured": self.measured, "threshold": self.threshold, "unit": self.unit}
        return plain | {
            **{name: number_as_json(number) for name, number in rule.items()},
            "advice": self.advice,
            "value": value_as_json(self.value),
            "inputs": [value_as_json(value) for value in self.inputs],
            "absorbed": list(self.absorbed),
            "others": list(self.others),
            "analysis": self.analysis,
        }


NOT_LOOKED_AT: Final = "not looked at"


def at_root_of(model: str, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings that name the run itself as tables do, by its model: ``Net#0`` where the id is ``#0``."""
    return tuple(
        [
            replace(finding, call=f"{model}{finding.call}") if finding.call.startswith("#") else finding
            for finding in findings
        ]
    )


def not_looked_at(analysis: str, subject: str, part: str, reason: str) -> Finding:
    """Return the finding that a part was not looked at although it was asked for, or is looked at by default.

    >>> str(not_looked_at("weights", "Net", "weights", "RuntimeError: no data"))
    'warning: Net#0: weights was not looked at: RuntimeError: no data'
    """
    return Finding(
        rule=NOT_LOOKED_AT,
        severity=WARNING,
        path="",
        call=f"{subject}#0",
        op=analysis,
        what=f"{part} was not looked at: {reason}",
        advice="What is said holds for the rest alone.",
        analysis=analysis,
    )


def value_as_json(value: Value | None) -> dict[str, Any] | None:
    """Return a tensor as plain data: dtype, shape, the name it has as a parameter, statistics."""
    if value is None:
        return None
    stats = value.stats
    names = (
        () if stats is None else ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")
    )
    numbers = {name: number_as_json(getattr(stats, name)) for name in names}
    part = {} if value.sharding is None else {"part": str(value.sharding)}
    return {"dtype": value.dtype, "shape": list(value.shape), "name": value.name, **part, **numbers}


def number_as_json(number: Any) -> Any:
    """Return a number for JSON: complex as a pair, infinite (the std of numbers like 1e308) as text."""
    if isinstance(number, complex):
        return [number_as_json(number.real), number_as_json(number.imag)]
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number
