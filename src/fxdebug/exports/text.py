"""The call tree as text on a terminal, by rich: one line for a call, repeated layers folded, aligned columns."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats, Value, shape_text
from fxdebug.files.write_file import write_text as write_file
from fxdebug.printable import printable, printable_lines
from fxdebug.query.folding import FoldedCalls, fold_repeated, main_output

WIDE = 110  # columns of a terminal from which inputs are shown too
NAME, SHORT_NAME = 24, 16  # characters for the names of calls: with fewer, other columns are left out


# Columns that may be left out, in this order, until the names of calls have room for this many characters.
_ROOM_NEEDED = {
    **dict.fromkeys(("in", "dtype", "std", "min"), NAME),
    **dict.fromkeys(("max", "out", "mean"), SHORT_NAME),
}

_NUMBER = re.compile(r"\d+")
_SHORT_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def tree(
    trace: TraceData,
    *,
    width: int | None = None,
    color: bool | None = None,
    fold: bool = True,
    depth: int | None = None,
) -> str:
    """Return the whole trace as text: a headline, the tree with statistics of each call's first output, notes.

    ``width`` and ``color`` default to the terminal's (80 columns and none where output is piped).
    ``fold=False`` shows every layer; ``depth`` limits the levels.
    """
    if width is None:
        width = shutil.get_terminal_size().columns
    if color is None:
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    console = Console(
        file=io.StringIO(),
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        highlight=False,
    )
    console.print(headline(trace))
    console.print(_table(trace, fold_repeated(trace, fold=fold, depth=depth), width))
    for line in remarks(trace):
        console.print(line)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def headline(trace: TraceData) -> Text:
    """Return the first line: the model, its calls and values, and the duration."""
    calls, values = len(trace.calls), len(trace.values)
    parts = [
        f"{calls} call{'s' * (calls != 1)}",
        f"{values} value{'s' * (values != 1)}",
        f"{trace.duration * 1e3:.1f} ms",
    ]
    if trace.root.method != "forward":
        parts.insert(0, trace.root.method)
    return Text.assemble((printable(trace.model), "bold"), "  ", " · ".join(parts))


def _table(trace: TraceData, root: FoldedCalls, width: int) -> Table:
    nonfinite = any(v.stats is not None and v.stats.finite < v.stats.count for v in trace.values)
    wide = width >= WIDE
    names = ["call", *(["in"] if wide else []), "out", "dtype", "mean", "std", "min", "max"]
    names += ["not finite"] if nonfinite else []
    rows = [_cells(row, lead, wide, nonfinite) for row, lead in _rows_with_guides(root)]
    sizes = [max(len(name), *(len(row[i].plain) for row in rows)) for i, name in enumerate(names)]
    shown, room = _columns_that_fit(names, sizes, width)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for i in shown:
        side = "right" if names[i] in ("mean", "std", "min", "max") else "left"
        table.add_column(names[i], justify=side, no_wrap=True, max_width=sizes[i] if i else room)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*[row[i] for i in shown])
    return table


def _columns_that_fit(names: list[str], sizes: list[int], width: int) -> tuple[list[int], int]:
    """Return the columns that fit and the characters left for names; columns are left out before a number is cut."""
    shown = list(range(len(names)))

    def room() -> int:
        return width - sum(sizes[i] + 1 for i in shown if i)

    for column, needed in _ROOM_NEEDED.items():
        if room() >= min(needed, sizes[0]):
            break
        if column in names:
            shown.remove(names.index(column))
    return shown, max(room(), SHORT_NAME)


def _rows_with_guides(root: FoldedCalls) -> Iterator[tuple[FoldedCalls, str]]:
    """Yield every row with the tree lines to draw before it."""
    pending: list[tuple[FoldedCalls, str, str]] = [(root, "", "")]
    while pending:
        row, lead, below = pending.pop()
        yield row, lead
        last = len(row.children) - 1
        for position, child in reversed(list(enumerate(row.children))):
            guides = ("└ ", "  ") if position == last else ("├ ", "│ ")
            pending.append((child, below + guides[0], below + guides[1]))


def _cells(row: FoldedCalls, lead: str, wide: bool, nonfinite: bool) -> list[Text]:
    call = row.first
    label = Text.assemble((lead, "dim"), printable(row.name))
    if row.name != call.type:
        label.append(f" {printable(call.type)}", "cyan" if call.origin == "registered" else "magenta")
    cells = [label]
    if wide:
        cells.append(Text(shapes(list(call.inputs))))
    if call.error is not None:
        cells.append(Text("raised", "bold red"))
        cells.append(Text(call.error.type if call.error.here else "", "red"))
        return cells + [Text("")] * (4 + nonfinite)
    value = main_output(call)
    cells.append(Text(shapes([] if call.outputs is None else list(call.outputs))))
    cells.append(Text("" if value is None else _SHORT_DTYPES.get(value.dtype, value.dtype), "dim"))
    stats = row.stats()
    bad = stats is not None and stats.finite < stats.count
    cells += [Text(text, "red" if bad else "") for text in _numbers(stats)]
    if nonfinite:
        cells.append(Text(not_finite(stats) if stats is not None and bad else "", "bold red"))
    return cells


def _outermost(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths that are not below another one of them."""
    known = set(paths)
    above = {path: {path[:i] for i, letter in enumerate(path) if letter == "."} for path in paths}
    return tuple(path for path in paths if not above[path] & known)


def _examples(counts: Counter[str], paths: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    """Yield each pattern (a path with # for numbers) with its count, the count, and one path of it."""
    first: dict[str, str] = {}
    for path in paths:
        first.setdefault(_NUMBER.sub("#", path), path)
    for name, count in counts.items():
        yield f"{name} ×{count}", count, first[name]


def shapes(values: list[Value]) -> str:
    """Return the shape of the first tensor, and how many more there are."""
    if not values:
        return ""
    return shape_text(values[0].shape) + (f" +{len(values) - 1}" if len(values) > 1 else "")


def _numbers(stats: Stats | None) -> list[str]:
    if stats is None:
        return ["", "", "", ""]
    return [number(x) for x in (stats.mean, stats.std, stats.min, stats.max)]


def number(x: float | int | complex | None) -> str:
    """Return a number in at most eight characters.

    >>> number(-0.0031415), number(123456), number(1.5e-7), number(2.0)
    ('-0.00314', '123456', '1.5e-07', '2')
    """
    if x is None:
        return ""
    if isinstance(x, complex):
        return f"{abs(x):.3g}∠"
    if isinstance(x, int) and abs(x) < 10_000_000:
        return str(x)
    text = f"{x:.3g}"
    return text if len(text) <= 8 else f"{x:.1e}"


def not_finite(stats: Stats) -> str:
    """Return the counts of elements that are not finite: ``3 NaN, 1 −Inf``."""
    counts = ((stats.nan, "NaN"), (stats.posinf, "+Inf"), (stats.neginf, "−Inf"))
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def remarks(trace: TraceData) -> list[Text]:
    """Return the lines below the tree: where the run raised, modules never called, the first notes."""
    remarks: list[Text] = []

    def add(text: str, style: str) -> None:
        remarks.append(Text(printable_lines(text), style))

    failed = next((call for call in trace.calls if call.error is not None and call.error.here), None)
    if failed is not None and trace.error is not None:
        source = (failed.error.source if failed.error is not None else None) or failed.source
        where = f" ({source})" if source else ""
        add(f"raised in {failed.path or trace.model}{where}: {failed.error}", "red")
    if trace.never_called:
        absent = _outermost(trace.never_called)
        counts = Counter(_NUMBER.sub("#", path) for path in absent)
        names = [name if count > 1 else path for name, count, path in _examples(counts, absent)]
        shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        add(f"never called: {shown}", "dim")
    for note in trace.notes[:5]:
        add(f"note: {note.where + ': ' if note.where else ''}{note.what}", "yellow")
    if len(trace.notes) > 5:
        add(f"and {len(trace.notes) - 5} more notes in trace.notes", "yellow")
    return remarks


def listing(
    rows: Sequence[tuple[str, str, str | None, tuple[Value, ...], str | None]], width: int | None = None
) -> str:
    """Return one line for each (id, kind, status, values, source), in columns, and the number of lines last.

    Where ``width`` is too small, columns are left out: the status, the source, the kind.
    """
    cells = []
    for id, kind, status, values, source in rows:
        first = values[0] if values else None
        stats = None if first is None else first.stats
        bad = stats is not None and stats.finite < stats.count
        numbers = not_finite(stats) if stats is not None and bad else " ".join(_numbers(stats)[:2])
        line = "" if source is None else source.rpartition("/")[2]
        label = "" if first is None else first.label
        cells.append([printable(cell) for cell in (id, kind, label, numbers, status or "", line)])
    widths = [max((len(row[i]) for row in cells), default=0) for i in range(6)]
    shown = [i for i in range(6) if widths[i]]
    for column in (4, 5, 1):
        if width is not None and column in shown and sum(widths[i] + 2 for i in shown) - 2 > width:
            shown.remove(column)
    lines = ["  ".join(row[i].ljust(widths[i]) for i in shown).rstrip() for row in cells]
    return "\n".join([*lines, f"{len(rows)} found"])


def write_text(trace: TraceData, path: Path, *, width: int = 100, fold: bool = True, depth: int | None = None) -> Path:
    """Write the tree as a text file."""
    return write_file(path, tree(trace, width=width, color=False, fold=fold, depth=depth) + "\n")
