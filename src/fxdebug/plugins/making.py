"""Make a plug-in: mark a function as a measure or a rule, and return a finding or a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import make_dataclass
from typing import Any, Final, TypeVar

from fxdebug.data.calls import Call, Note
from fxdebug.data.findings import WARNING, Finding, Severity
from fxdebug.data.measures import Subject, Unit
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.errors import UsageError

MARK: Final = "__fxdebug__"  # the attribute of a function that has what its marker was given
_CELLS = (bool, int, float, str, type(None))  # what a report can show, write and read back
Function = TypeVar("Function", bound=Callable[..., Any])


def measure(
    unit: Unit = "", of: Subject | Iterable[Subject] = "call", *, adds: bool = False
) -> Callable[[Function], Function]:
    """Mark a function as one that takes a measure: it gets a trace and returns numbers by the id of a call or node.

    The name of the measure is that of the entry point, its meaning the first line of the docstring. ``unit`` is that
    of the numbers, ``of`` the subject that has them, and ``adds`` tells whether those of repeated layers add up.

    >>> @measure("B", of="call", adds=True)
    ... def weight_bytes(trace):
    ...     \"\"\"Bytes of a call's own weights.\"\"\"
    ...     return {call.id: 8.0 for call in trace.calls}
    """
    subjects: tuple[Subject, ...] = (of,) if isinstance(of, str) else tuple(of)  # type: ignore[assignment]

    def mark(function: Function) -> Function:
        setattr(function, MARK, (unit, subjects, adds))
        return function

    return mark


def rule(severity: Severity = WARNING) -> Callable[[Function], Function]:
    """Mark a function as a rule of ``check``: it gets a trace and returns findings, made by :func:`found`.

    The name of the rule is that of the entry point, its meaning the first line of the docstring.

    >>> @rule("warning")
    ... def wide_layer(trace):
    ...     \"\"\"A linear layer returns more than 4096 numbers a row.\"\"\"
    ...     for call in trace.find(type="Linear", where="numel > 4096"):
    ...         yield found(call, "is wide", measured=call.outputs[0].shape[-1], threshold=4096)
    """

    def mark(function: Function) -> Function:
        setattr(function, MARK, severity)
        return function

    return mark


def found(
    item: Any,
    what: str,
    *,
    measured: float | None = None,
    threshold: float | None = None,
    unit: Unit = "",
    advice: str = "",
    rule: str = "",
    severity: Severity = WARNING,
) -> Finding:
    """Return a finding at a call or an operation, by a ``rule`` of a feature with its ``severity``.

    Of a function that is marked with :func:`rule`, ``check`` adds both.

    ``what`` says in a sentence what is wrong, ``advice`` what to do. ``measured`` is the number that was compared with
    ``threshold``, both in ``unit``.
    """
    is_call = isinstance(item, Call)
    return Finding(
        rule=rule,
        severity=severity,
        path=item.path,
        call=item.id if is_call else item.call.id,
        op=item.type if is_call else item.op,
        node="" if is_call else item.id,
        source=item.source,
        what=what,
        measured=measured,
        threshold=threshold,
        unit=unit,
        advice=advice,
    )


def report(
    name: str,
    trace: Any,
    rows: Sequence[Mapping[str, Cell]],
    *,
    units: Mapping[str, Unit] | None = None,
    notes: Iterable[str] = (),
    totals: Mapping[str, tuple[Cell, Unit]] | None = None,
    findings: Iterable[Finding] = (),
    measures: Mapping[str, Mapping[str, float]] | None = None,
    answer: str = "",
) -> ReportData[Any]:
    """Return a report on a trace from rows by the names of their columns, for an analysis.

    All rows have the columns of the first one. ``units`` are those of columns with numbers. ``measures`` are numbers by
    the id of a call or an operation, by the names of measures that the feature registers. ``answer`` is one sentence
    that stands first wherever the report is shown, in what ``check`` asks, too.

    >>> report("widths", type("T", (), {"model": "Net"}), [{"call": "0#0", "width": 8}]).columns[1].heading
    'width'
    """
    names = list(rows[0]) if rows else []
    if any(list(row) != names for row in rows):
        raise UsageError(f"the rows of the report {name!r} have different columns: give all of them {', '.join(names)}")
    for number, row in enumerate(rows):
        wrong = next((field for field, cell in row.items() if not isinstance(cell, _CELLS)), None)
        if wrong is not None:
            kind = type(row[wrong]).__name__
            raise UsageError(
                f"row {number} of the report {name!r} has {kind} as {wrong!r}: give a number, a text or None"
            )
    row_type = make_dataclass("Row", [(field, Any) for field in names], frozen=True)
    columns = [Column(field, field.replace("_", " "), (units or {}).get(field, "")) for field in names]
    return ReportData(
        name,
        trace.model,
        tuple(columns),
        tuple([row_type(**row) for row in rows]),
        totals=totals or {},
        findings=tuple(findings),
        measures=measures or {},
        notes=tuple([Note(text) for text in notes]),
        ranked=False,
        folds=False,
        answer=answer,
    )
