"""A report on the terminal and in a notebook: the totals, the first rows, findings and notes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from fxdebug.analyses.numbers.findings import paragraph
from fxdebug.cells import cell_len, shortened_to, wrapped
from fxdebug.data.measures import Unit, quantity
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.exports.ranges import name_range, without_numbers
from fxdebug.exports.screen import Screen, wants_color
from fxdebug.files.write_file import write_text as write_file
from fxdebug.plugins.feature import Place, at
from fxdebug.plugins.features import features
from fxdebug.printable import printable, printable_lines

NAMES = 2  # columns with names, of the call and of its class: the others are never cut
SHORT = 8  # letters of names that are not cut either
LEAST = 8  # letters that are left of a name
FIRST = 14  # letters of the first name, for which columns are left out
ROWS = 20  # rows on a screen; files have all of them


def own_text(analysis: str) -> Place:
    """Return the function that prints the reports of an analysis; empty where they are printed as tables.

    >>> own_text("check"), own_text("flops")
    ('fxdebug.exports.report.findings_text:text', '')
    """
    ours = "fxdebug.exports.report.findings_text:text" if analysis == "check" else ""
    return next((one.texts[analysis] for one in features() if analysis in one.texts), ours)


def screen(
    report: ReportData[Any], *, width: int | None = None, color: bool | None = None, rows: int | None = ROWS
) -> str:
    """Return a report as text: a headline, the totals, at most ``rows`` rows, findings and notes.

    ``width`` and ``color`` default to the terminal's; ``rows=None`` shows every row.
    """
    width = shutil.get_terminal_size().columns if width is None else width
    place = own_text(report.analysis)
    if place:
        return printable_lines(at(place)(report, width))
    color = wants_color() if color is None else color
    console = Screen(width, color)
    if report.answer:
        console.print(Text("\n".join(wrapped(printable(report.answer), width)), "bold"))
    console.print(headline(report))
    if report.totals:
        console.print(_totals(report))
    lines = lines_of(report, everything=rows is None)
    if lines:
        _print_table(console, report, lines[:rows], width)
    if rows is not None and len(lines) > rows:
        console.print(Text(f"and {len(lines) - rows} more lines; report.rows has all {len(report.rows)} rows", "dim"))
    for part in report.parts:
        if not part.rows:
            continue
        console.print()
        console.print(Text(f"{part.analysis} by {_plain(part.settings.get('by'))}", "bold"))
        lines = lines_of(part, everything=rows is None)
        _print_table(console, part, lines[:rows], width)
        if rows is not None and len(lines) > rows:
            console.print(Text(f"and {len(lines) - rows} more lines", "dim"))
    for finding in report.findings:
        console.print()
        console.print("\n".join(paragraph(finding, width)))
    for note in report.notes:
        where = f"{note.where}: " if note.where else ""
        console.print(Text("\n".join(wrapped(f"note: {printable(where + note.what)}", width)), "yellow"))
    return console.text()


def write_text(report: ReportData[Any], path: Path, *, width: int = 100) -> Path:
    """Write a report as a text file, with every row."""
    return write_file(path, screen(report, width=width, color=False, rows=None) + "\n")


def headline(report: ReportData[Any]) -> Text:
    """Return the first line: the analysis, the model, and the settings that it ran with."""
    settings = " · ".join(f"{name} {_plain(value)}" for name, value in report.settings.items())
    line = Text.assemble((f"{report.analysis} of ", "dim"), (report.subject, "bold"))
    return line.append(f"  {settings}", "dim") if settings else line


def _totals(report: ReportData[Any]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for heading in report.totals:
        table.add_row(Text(heading, "dim"), Text(total_text(report, heading), "bold"))
    return table


def total_text(report: ReportData[Any], heading: str) -> str:
    """Return a total as text: counts with commas, ``at least`` before a number with an unknown part."""
    number, unit = report.totals[heading]
    is_count = isinstance(number, int) and not isinstance(number, bool) and not unit
    text = f"{number:,}" if is_count else cell(number, unit)
    return f"at least {text}" if heading in report.at_least and number is not None else text


def _print_table(console: Screen, report: ReportData[Any], lines: Sequence[Line], width: int) -> None:
    """Print the table of some lines: numbers are never cut, names share the room that is left.

    Where it is too narrow for names that can be read, columns are left out, and named.
    """
    columns = [column for column in report.columns if column.shown and any(line.says(column) for line in lines)]
    texts = [c.field for c in columns if not is_number(c, [getattr(row, c.field) for row in report.rows])]
    left_out: list[Column] = []
    cells, sizes, fixed, room = _sizes(columns, texts, lines, width)
    while room < _wanted(sizes, fixed) and (spare := _spare(columns, texts, report.ranked_by)) is not None:
        left_out.append(spare)
        columns = [column for column in columns if column is not spare]
        texts = texts[:1] if spare.field in texts else texts
        cells, sizes, fixed, room = _sizes(columns, texts, lines, width)
    names = [size for size, number in zip(sizes, fixed) if not number]
    fits = sum(names) + len(names) <= room
    shares = iter(names if fits else _shares(names, room - len(names)))
    rooms = [size if number else next(shares) for size, number in zip(sizes, fixed)]
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for column, size, most, number in zip(columns, sizes, rooms, fixed):
        if number:
            side: JustifyMethod = "left" if column.field in texts else "right"
            table.add_column(column.heading, justify=side, no_wrap=True, min_width=size)
        else:
            table.add_column(shortened_to(column.heading, most), no_wrap=True)
    for row in cells:
        table.add_row(*[Text(shortened_to(text, most, "sense")) for text, most in zip(row, rooms)])
    console.print(table)
    if left_out:
        names_of = ", ".join(column.heading for column in report.columns if column in left_out)
        console.print(Text("\n".join(wrapped(f"no room in {width} columns for {names_of}", width)), "dim"))


def _wanted(sizes: Sequence[int], fixed: Sequence[bool]) -> int:
    """Return the room that names need to be told apart."""
    names = [size for size, number in zip(sizes, fixed) if not number]
    return sum(min(size, LEAST if place else FIRST) + 1 for place, size in enumerate(names))


def _spare(columns: Sequence[Column], texts: Sequence[str], ranked_by: Sequence[str]) -> Column | None:
    """Return the column to leave out first: the second name, then the last number that the order is not by."""
    if len(texts) > 1:
        return next((column for column in columns if column.field == texts[1]), None)
    numbers = [column for column in columns[1:] if column.field not in texts][1:][::-1]
    return next((column for column in numbers if column.field not in ranked_by), next(iter(numbers), None))


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return the room of each of some names: in proportion to its size, at least a few letters, all of it together.

    >>> _shares([45, 11], 25), _shares([20, 20], 25)
    ([17, 8], [13, 12])
    """
    shares = [max(LEAST, room * size // max(sum(sizes), 1)) for size in sizes]
    largest = max(range(len(sizes)), key=sizes.__getitem__, default=0)
    if shares:
        shares[largest] = max(LEAST, shares[largest] + room - sum(shares))
    return shares


def _sizes(
    columns: Sequence[Column], texts: Sequence[str], lines: Sequence[Line], width: int
) -> tuple[list[list[str]], list[int], list[bool], int]:
    """Return the cells, the width of each column, whether it is never cut, and the room that such ones leave."""
    cells = [[line.text(column) for column in columns] for line in lines]
    sizes = [max(cell_len(text) for text in (c.heading, *(row[i] for row in cells))) for i, c in enumerate(columns)]
    fixed = [c.field not in texts[:NAMES] or size <= SHORT for c, size in zip(columns, sizes)]
    return cells, sizes, fixed, width - sum(size + 1 for size, number in zip(sizes, fixed) if number)


class Line(dict[str, Cell]):
    """One line of a screen: a row, or several rows in one, by the fields of the columns.

    ``incomplete`` are the fields of sums in which a number is missing.
    """

    incomplete: frozenset[str] = frozenset()

    def says(self, column: Column) -> bool:
        """Is there something in a cell, if only that its number is not known?"""
        return bool(self[column.field] or (column.at_least and self[column.at_least]))

    def text(self, column: Column) -> str:
        """Return a cell; a number with an unknown part is a lower bound: ``≥ 3 MFLOP``."""
        content = self[column.field]
        shown = cell(content, column.unit)
        is_bound = column.field in self.incomplete or bool(column.at_least and self[column.at_least])
        return f"≥ {shown}" if is_bound and content is not None else shown


def lines_of(report: ReportData[Any], *, everything: bool = False) -> list[Line]:
    """Return the lines of a screen, or with ``everything`` a line for each row."""
    if report.folds and not everything:
        return folded(report)
    lines = [Line(report.cells(row)) for row in report.rows]
    for line in lines if not everything and report.columns[:1] and report.columns[0].field == "call" else ():
        line["call"] = str(line["call"]).removesuffix("#0")  # the number of a call is of interest where there are more
    return lines


def folded(report: ReportData[Any]) -> list[Line]:
    """Return the lines of a screen: rows whose names differ only in numbers are one line, ``h.0…11.mlp ×12``.

    Numbers of a column that adds are summed, and what rows have in common counts once; of others the range is shown,
    ``0.1…0.3``. The lines are in the report's own order: largest first where it is ranked by a sum, with those whose
    number is not known last, else that of their first rows. In a ranked report lines of zeros are left out.
    """
    groups: dict[tuple[str, ...], list[dict[str, Cell]]] = {}
    for row in report.rows:
        cells = report.cells(row)
        names = [x for x in cells.values() if isinstance(x, str)][:NAMES]
        groups.setdefault(tuple([without_numbers(name) for name in names]), []).append(cells)
    lines = [_folded_line(report, rows) for rows in groups.values()]
    adding = [column.field for column in report.columns if column.adds and report.ranked]
    lines = [line for line in lines if not adding or any(line[field] != 0 for field in adding)] or lines
    return sorted(lines, key=lambda line: _rank(line, report.ranked_by)) if report.ranked_by else lines


def _rank(line: Line, fields: Sequence[str]) -> tuple[bool, float]:
    known = [float(number) for field in fields if isinstance(number := line[field], (int, float))]
    return not known, -sum(known)


def _folded_line(report: ReportData[Any], rows: list[dict[str, Cell]]) -> Line:
    line = Line()
    for position, column in enumerate(report.columns):
        cells = [row[column.field] for row in rows]
        if isinstance(cells[0], str):
            line[column.field] = _folded_text([x for x in cells if isinstance(x, str)], position)
        elif column.adds:
            known = [x for x in cells if isinstance(x, (int, float))]
            line[column.field] = sum(known) if known else None
            if known and len(known) < len(cells):
                line.incomplete |= {column.field}
        else:
            line[column.field] = cells[0] if all(x == cells[0] for x in cells) else _low_to_high(cells, column.unit)
    if report.shared is not None and len(rows) > 1:
        first = report.columns[0].field
        pieces = sorted({piece for row in rows for piece in report.shared.of.get(str(row[first]), ())})
        for field, numbers in report.shared.numbers.items():
            line[field] = sum(numbers[piece] for piece in pieces)
    for column in report.columns:
        if column.quotient is not None:
            line[column.field] = _quotient(*(line[field] for field in column.quotient))
    return line


def _folded_text(texts: Sequence[str], position: int) -> str:
    """Return one text for those of several rows: names with the range of their numbers, and how often in the first."""
    if position >= NAMES:
        texts = [text for text in texts if text] or [""]
    names = [text.removesuffix("#0") for text in texts]
    if not position and len({text.rpartition("#")[0] for text in texts}) == 1 and "#" in texts[0]:
        names = [texts[0].rpartition("#")[0]]  # several calls of one module
    same = len(set(names)) == 1 or (position < NAMES and len({without_numbers(name) for name in names}) == 1)
    text = name_range(names) if same else f"{names[0]} …"
    return text + (f" ×{len(texts)}" if len(texts) > 1 and not position else "")


def _quotient(above: Cell, below: Cell) -> float | None:
    if not isinstance(above, (int, float)) or not isinstance(below, (int, float)):
        return None
    return above / below if below else None


def _low_to_high(cells: list[Cell], unit: Unit) -> str:
    """Return the range of numbers that do not add: ``0.1…0.3``; nothing where they are not numbers."""
    known = [float(x) for x in cells if isinstance(x, (int, float)) and not isinstance(x, bool)]
    finite = [x for x in known if math.isfinite(x)]
    if not finite:
        return cell(known[0], unit) if known else ""
    low, high = (cell(float(f"{x:.2g}"), unit) for x in (min(finite), max(finite)))  # two digits: room is short
    number, _, name = low.rpartition(" ")
    if number:  # the unit once; of rates, whose units are long, also where their prefixes differ
        same, rate = high.endswith(f" {name}"), name.endswith("FLOP/s")
        low = number if same else f"{number} {name.removesuffix('FLOP/s')}" if rate else low
    broken = next((f", {x}" for x in known if not math.isfinite(x)), "")
    return (high if low == high else f"{low}…{high}") + broken


def is_number(column: Column, cells: Sequence[Cell]) -> bool:
    """Does a column have numbers, which are shown at its right side? ``cells``: those of the rows, not of lines."""
    return bool(column.unit) or any(isinstance(x, (int, float)) and not isinstance(x, bool) for x in cells)


def cell(value: Cell, unit: Unit = "") -> str:
    """Return one cell: numbers with their unit, ``n/a`` for a number that could not be measured.

    >>> cell(0.25, "%"), cell(None, "s"), cell(7), cell("linear"), cell(True)
    ('0.25 %', 'n/a', '7', 'linear', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int) and not unit:
        return str(value)
    return quantity(value, unit)


def _plain(value: Cell) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
