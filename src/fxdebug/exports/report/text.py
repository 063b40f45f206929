"""A report on the terminal and in a notebook: the totals, the first rows, findings and notes."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from fxdebug.analyses.findings import paragraph
from fxdebug.data.measures import Unit, quantity
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.files.write_file import write_text as write_file
from fxdebug.printable import printable

NAMES = 2  # columns with names, of the call and of its class: the others are never cut
ROWS = 20  # rows on a screen; files have all of them


def screen(
    report: ReportData[Any], *, width: int | None = None, color: bool | None = None, rows: int | None = ROWS
) -> str:
    """Return a report as text: a headline, the totals, at most ``rows`` rows, findings and notes.

    ``width`` and ``color`` default to the terminal's; ``rows=None`` shows every row.
    """
    width = shutil.get_terminal_size().columns if width is None else width
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ if color is None else color
    output = io.StringIO()
    console = Console(
        file=output, width=width, color_system="standard" if color else None, force_terminal=color, highlight=False
    )
    console.print(headline(report))
    if report.totals:
        console.print(_totals(report))
    lines = folded(report) if rows is not None else [report.cells(row) for row in report.rows]
    if lines:
        console.print(_table(report, lines[:rows], width))
    if rows is not None and len(lines) > rows:
        console.print(Text(f"and {len(lines) - rows} more lines; report.rows has all {len(report.rows)} rows", "dim"))
    for part in report.parts:
        console.print()
        console.print(Text(f"{part.analysis} by {_plain(part.settings.get('by'))}", "bold"))
        console.print(_table(part, [part.cells(row) for row in part.rows[:rows]], width))
        if rows is not None and len(part.rows) > rows:
            console.print(Text(f"and {len(part.rows) - rows} more", "dim"))
    for finding in report.findings:
        console.print()
        console.print("\n".join(paragraph(finding, width)), markup=False)
    for note in report.notes:
        where = f"{note.where}: " if note.where else ""
        console.print(Text("\n".join(textwrap.wrap(f"note: {printable(where + note.what)}", width)), "yellow"))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def write_text(report: ReportData[Any], path: Path, *, width: int = 100) -> Path:
    """Write a report as a text file, with every row."""
    return write_file(path, screen(report, width=width, color=False, rows=None) + "\n")


def headline(report: ReportData[Any]) -> Text:
    """Return the first line: the analysis, the model, and the settings that it ran with."""
    settings = " · ".join(f"{name} {_plain(value)}" for name, value in report.settings.items())
    line = Text.assemble((f"{report.analysis} of ", "dim"), (printable(report.subject), "bold"))
    return line.append(f"  {settings}", "dim") if settings else line


def _totals(report: ReportData[Any]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for heading, (number, unit) in report.totals.items():
        table.add_row(Text(heading, "dim"), Text(cell(number, unit), "bold"))
    return table


def _table(report: ReportData[Any], lines: list[dict[str, Cell]], width: int) -> Table:
    """Return the table of some lines: numbers are never cut, names share the room that is left."""
    columns = [column for column in report.columns if column.shown and any(line[column.field] for line in lines)]
    cells = [[cell(line[column.field], column.unit) for column in columns] for line in lines]
    texts = [column.field for column in columns if not _is_number(column, lines)]
    fixed = [column.field not in texts[:NAMES] for column in columns]  # or short: a shape, a word
    sizes = [max(cell_len(text) for text in (c.heading, *(row[i] for row in cells))) for i, c in enumerate(columns)]
    room = width - sum(size + 1 for size, number in zip(sizes, fixed) if number)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    names = [size for size, number in zip(sizes, fixed) if not number]
    for column, size, number in zip(columns, sizes, fixed):
        if number:
            side: JustifyMethod = "left" if column.field in texts else "right"
            table.add_column(column.heading, justify=side, no_wrap=True, min_width=size)
        else:
            table.add_column(column.heading, no_wrap=True)
    fits = sum(names) + len(names) <= room
    rooms = [size if number or fits else max(8, room * size // sum(names) - 1) for size, number in zip(sizes, fixed)]
    for row in cells:
        table.add_row(*[Text(_end(text, most)) for text, most in zip(row, rooms)])
    return table


def _end(text: str, width: int) -> str:
    """Return at most ``width`` columns of a text: the end of a path tells more than its beginning."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[1:]
    return f"…{text}"


def folded(report: ReportData[Any]) -> list[dict[str, Cell]]:
    """Return the lines of a screen: rows whose names differ only in numbers are one line, ``h.0…11.mlp ×12``.

    Numbers of a column that adds are summed; other numbers are shown where all rows agree. The lines keep the order
    of their first rows, but the larger sum of the first column that adds comes first; lines of zeros are left out.
    """
    groups: dict[tuple[str, ...], list[dict[str, Cell]]] = {}
    for row in report.rows:
        cells = report.cells(row)
        names = [x for x in cells.values() if isinstance(x, str)][:NAMES]
        groups.setdefault(tuple([_NUMBER.sub("#", name) for name in names]), []).append(cells)
    lines = [_folded_line(report.columns, rows) for rows in groups.values()]
    adding = [column.field for column in report.columns if column.adds and report.ranked]
    lines = [line for line in lines if not adding or any(line[field] for field in adding)] or lines
    first = next(iter(adding), None)
    return lines if first is None else sorted(lines, key=lambda line: -float(line[first] or 0))


def _folded_line(columns: tuple[Column, ...], rows: list[dict[str, Cell]]) -> dict[str, Cell]:
    line: dict[str, Cell] = {}
    for position, column in enumerate(columns):
        cells = [row[column.field] for row in rows]
        if isinstance(cells[0], str):
            names = [x.removesuffix("#0") for x in cells if isinstance(x, str)]
            same = len(set(names)) == 1 or (position < NAMES and len({_NUMBER.sub("#", name) for name in names}) == 1)
            text = _range(names) if same else f"{names[0]} …"
            line[column.field] = text + (f" ×{len(rows)}" if len(rows) > 1 and not position else "")
        elif column.adds:
            known = [x for x in cells if isinstance(x, (int, float))]
            line[column.field] = sum(known) if known else None
        else:
            line[column.field] = cells[0] if all(x == cells[0] for x in cells) else ""
    return line


def _range(names: list[str]) -> str:
    """Return names that differ in one number as one: ``h.0…11.mlp``; with ``…`` for numbers that vary together."""
    if len(set(names)) == 1:
        return names[0]
    parts = [_NUMBER.split(name) for name in names]
    numbers = [_NUMBER.findall(name) for name in names]
    text = parts[0][0]
    for i, after in enumerate(parts[0][1:]):
        column = [int(row[i]) for row in numbers]
        text += _numbers(sorted(set(column))) + after
    return text


def _numbers(numbers: list[int]) -> str:
    """Return numbers as one text: ``0…11`` where none is missing, or where they are many."""
    in_a_row = numbers[-1] - numbers[0] == len(numbers) - 1
    if len(numbers) == 1 or (len(numbers) < 4 and not (in_a_row and len(numbers) > 2)):
        return ",".join(map(str, numbers))
    return f"{numbers[0]}…{numbers[-1]}"


_NUMBER = re.compile(r"\d+")


def _is_number(column: Column, lines: list[dict[str, Cell]]) -> bool:
    cells = [line[column.field] for line in lines]
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
