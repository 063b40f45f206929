"""A report: the answer of an analysis as plain data. Rows with units, findings, notes, and the settings it ran with.

Every analysis answers with a :class:`ReportData`. Users get a :class:`fxdebug.Report`, which adds methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from fxdebug.brief import MOST, brief, cut
from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.measured.timings import Span
from fxdebug.data.measures import Numbers, Unit, counted
from fxdebug.printable import printable

Cell: TypeAlias = "float | int | str | bool | None"
Row = TypeVar("Row", covariant=True)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a report: the attribute of the rows, its heading, its unit and one line of explanation.

    ``adds`` tells whether the numbers of repeated layers add up where the screen shows these in one line. ``quotient``
    names two other columns whose quotient this one is, for such lines too. ``at_least`` names a column of texts: where
    it says what is not counted, the numbers of this one are lower bounds.
    """

    field: str
    heading: str
    unit: Unit = ""
    about: str = ""
    adds: bool = False
    shown: bool = True  # on the terminal; files have every column
    quotient: tuple[str, str] | None = None
    at_least: str = ""


@brief
@dataclass(frozen=True, slots=True)
class Shared:
    """The pieces that numbers of rows are sums of, where rows may have pieces in common: parameters of modules.

    ``of`` are the positions of a row's pieces, by its first cell; ``numbers`` are those of all pieces, by the field of
    the column that sums them. A line for several rows has each piece once.
    """

    of: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, tuple[float, ...]]


@brief
@dataclass(frozen=True, slots=True)
class Chart:
    """One statistic over the steps of a training: about the whole, or a line for each call or parameter.

    ``lines`` have a number for each of ``steps``, NaN for none, by the id of a call or the name of a parameter. Where
    one of them is called ``name``, all of them are about the whole. ``layers`` are the lines that a map of layers ×
    steps has. Numbers usually lie in ``usual``, or, without it, those of layers near those of the others.
    ``marks`` are lines at steps of its own, with their labels, in the place of those of the report.
    """

    name: str
    unit: Unit
    about: str
    steps: tuple[int, ...]
    lines: Mapping[str, tuple[float, ...]]
    layers: tuple[str, ...] = ()
    usual: tuple[float, float] | None = None
    marks: tuple[tuple[int, str], ...] | None = None


@dataclass(frozen=True)
class ReportData(Generic[Row]):
    """The answer of an analysis.

    ``answer`` is the answer in one sentence, where there is one: it stands first everywhere.
    ``analysis`` is the name of the function that made it, ``subject`` the model it is about. ``rows`` are frozen
    dataclasses with an attribute for every column, in the order of the screen; ``None`` means that a number could not
    be measured, and ``notes`` say why. ``totals`` are the numbers about the whole, by heading, with their unit;
    ``at_least`` are the headings of those that are lower bounds, because a part of them is not known.
    ``measures`` are the numbers by measure and by the id of a call or node: ``trace.with_measures(report)`` attaches
    them to a trace. ``ranked``: the screen leaves out lines of zeros. ``ranked_by`` are the fields whose sum the rows
    are in the order of, largest first. ``folds``: rows of repeated layers are one line there, in the same order;
    ``shared`` is what such rows have in common. ``charts`` are what a training did over its steps.
    """

    analysis: str
    subject: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    totals: Mapping[str, tuple[Cell, Unit]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    notes: tuple[Note, ...] = ()
    settings: Mapping[str, Cell] = field(default_factory=dict)
    measures: Mapping[str, Numbers] = field(default_factory=dict)
    parts: tuple[ReportData[Any], ...] = ()
    spans: tuple[Span, ...] = ()
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    marks: tuple[tuple[int, str], ...] = ()
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    charts: tuple[Chart, ...] = ()
    ranked: bool = True
    folds: bool = True
    ranked_by: tuple[str, ...] = ()
    at_least: tuple[str, ...] = ()
    shared: Shared | None = None
    answer: str = ""

    def __repr__(self) -> str:
        said = counted(len(self.rows), "row")
        if self.findings:
            said += f", {counted(len(self.findings), 'finding')}: {self.findings[0]}"
        return printable(cut(f"<{self.analysis} of {self.subject}: {said}", MOST) + ">")

    def cells(self, row: Row) -> dict[str, Cell]:  # type: ignore[misc]
        """Return one row by the field names of the columns."""
        return {column.field: getattr(row, column.field) for column in self.columns}
