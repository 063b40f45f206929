"""The call tree as text on a terminal, by rich: one line for a call, repeated layers folded, aligned columns."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Sharding, Stats, shape_text
from fxdebug.exports.records import STATISTICS, FoundRow
from fxdebug.files.write_file import write_text as write_file
from fxdebug.printable import printable, printable_lines
from fxdebug.query.folding import FoldedCalls, Row, fold_repeated, main_output, times

WIDE = 110  # columns of a terminal from which inputs are shown too
NAME, SHORT_NAME = 24, 16  # characters for the names of calls: with fewer, other columns are left out
_LEAST_NAME = 4  # columns of a name that are shown however little room there is


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
        color = wants_color()
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


def wants_color() -> bool:
    """Return whether to print in colour: on a terminal, unless ``NO_COLOR`` is set; elsewhere with ``FORCE_COLOR``."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    if forced is not None:
        return forced not in ("", "0")
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


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
    rows = list(_rows_with_guides(root))
    cells = [[_label(row, lead), *_cells(row, wide, nonfinite)] for row, lead in rows]
    sizes = [max(len(name), *(row[i].cell_len for row in cells)) for i, name in enumerate(names)]
    shown, room = _columns_that_fit(names, sizes, width)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for i in shown:
        side = "right" if names[i] in ("mean", "std", "min", "max") else "left"
        table.add_column(names[i], justify=side, no_wrap=True, max_width=sizes[i] if i else room)  # type: ignore[arg-type]
    for (row, lead), others in zip(rows, cells, strict=True):
        table.add_row(_label(row, lead, room), *[others[i] for i in shown if i])
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


def _rows_with_guides(root: FoldedCalls) -> Iterator[tuple[Row, str]]:
    """Yield every row with the tree lines to draw before it."""
    pending: list[tuple[Row, str, str]] = [(root, "", "")]
    while pending:
        row, lead, below = pending.pop()
        yield row, lead
        last = len(row.children) - 1
        for position, child in reversed(list(enumerate(row.children))):
            guides = ("└ ", "  ") if position == last else ("├ ", "│ ")
            pending.append((child, below + guides[0], below + guides[1]))


def _label(row: Row, lead: str, room: int = 1_000_000) -> Text:
    """Return the name and class of a row in ``room`` columns: how often it repeats is never cut."""
    name, repeated = printable(row.plain_name), times(row.repeats)
    room = max(room - cell_len(lead + repeated), _LEAST_NAME)
    label = Text.assemble((lead, "dim"), shortened_to(name, room), repeated)
    room -= cell_len(name) + 1
    if isinstance(row, FoldedCalls) and row.name != row.first.type and room > 0:
        kind = shortened_to(printable(row.first.type), room)
        label.append(f" {kind}", "cyan" if row.first.origin == "registered" else "magenta")
    return label


def _cells(row: Row, wide: bool, nonfinite: bool) -> list[Text]:
    """Return the cells of a row after its label."""
    if not isinstance(row, FoldedCalls):
        return [Text("")] * (6 + wide + nonfinite)
    call, cells = row.first, []
    if wide:
        cells.append(Text(shapes([call.inputs for call in row.calls])))
    if call.error is not None:
        cells.append(Text("raised", "bold red"))
        cells.append(Text(call.error.type if call.error.here else "", "red"))
        return cells + [Text("")] * (4 + nonfinite)
    value = main_output(call)
    cells.append(Text(shapes([call.outputs for call in row.calls])))
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


def path_ranges(paths: Iterable[str]) -> list[str]:
    """Return paths that differ in their numbers as one each, with the range of these numbers.

    >>> path_ranges(["h.0.drop", "h.1.drop", "h.2.drop", "head", "0", "3"])
    ['h.0…2.drop ×3', 'head', '0,3 ×2']
    """
    groups: dict[tuple[str, ...], list[list[int]]] = {}  # text between the numbers → the numbers of each path
    for path in paths:
        groups.setdefault(tuple(_NUMBER.split(path)), []).append([int(number) for number in _NUMBER.findall(path)])
    ranges = []
    for between, numbers in groups.items():
        columns = [_number_range(sorted(set(column))) for column in zip(*numbers)]
        ranges.append("".join(map("".join, zip(between, [*columns, ""]))) + times(len(numbers)))
    return ranges


def _number_range(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 1 and last - first < len(numbers):
        return f"{first}…{last}"
    return ",".join(map(str, numbers)) if len(numbers) <= 3 else f"{first}…{last}"


def shapes(calls: Sequence[Inputs | Outputs | None]) -> str:
    """Return the shape of the first tensor, a range where it grows from call to call, and how many more there are."""
    first = [] if not calls or calls[0] is None else list(calls[0])
    if not first:
        return ""
    main = [first[0], *(value for slots in calls[1:] if slots is not None and (value := next(iter(slots), None)))]
    more = f" +{len(first) - 1}" if len(first) > 1 else ""
    return shape_range([value.shape for value in main]) + _part(main[0].sharding) + more


def _part(sharding: Sharding | None) -> str:
    """Return in a few words which part of a distributed tensor the local one is."""
    if sharding is None:
        return ""
    shard = f" of {shape_text(sharding.shape)}" if sharding.is_shard else ""
    return shard + (" partial" if sharding.is_partial else "")


def shape_range(shapes: Sequence[tuple[int, ...]]) -> str:
    """Return the shapes of repetitions as one, with ranges for sizes that differ.

    >>> shape_range([(1, 4, 8), (1, 5, 8), (1, 6, 8)])
    '1×4…6×8'
    """
    if len(set(shapes)) == 1 or len(set(map(len, shapes))) > 1:
        return shape_text(shapes[0])
    sizes = [(min(known), max(known)) for known in zip(*shapes)]
    return "×".join(shape_text([low]) if low == high else f"{low}…{high}" for low, high in sizes)


def shortened_to(text: str, room: int) -> str:
    """Return text in at most ``room`` columns of a terminal, with … for what is cut off.

    >>> shortened_to("attention", 6), shortened_to("注意力", 5)
    ('atten…', '注意…')
    """
    return text if cell_len(text) <= room else f"{set_cell_size(text, max(room - 1, 0)).rstrip()}…"


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
        names = path_ranges(_outermost(trace.never_called))
        shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        add(f"never called: {shown}", "dim")
    for line in _sharding_remarks(trace):
        add(line, "dim")
    for note in trace.notes[:5]:
        add(f"note: {note.where + ': ' if note.where else ''}{note.what}", "yellow")
    if len(trace.notes) > 5:
        add(f"and {len(trace.notes) - 5} more notes in trace.notes", "yellow")
    return remarks


def listing(rows: Sequence[FoundRow], width: int | None = None) -> str:
    """Return the rows in columns under a line of their names, and the number of rows last.

    Where ``width`` is too small, columns are left out: the status, the source, statistics that were not asked for, the
    kind.
    """
    heads = ["id", "type" if not rows or rows[0].is_call else "operation", "out", *(rows[0].facts if rows else ())]
    numbers = range(3, len(heads))
    heads += ["not finite", "status", "source"]
    cells = [heads]
    for row in rows:
        line = "" if row.source is None else row.source.rpartition("/")[2]
        bad = row.stats is not None and row.stats.finite < row.stats.count
        facts = [fact if isinstance(fact, str) else number(fact) for fact in row.facts.values()]
        finite = not_finite(row.stats) if row.stats is not None and bad else ""
        cells.append(
            [printable(text) for text in (row.id, row.kind, row.label, *facts, finite, row.status or "", line)]
        )
    widths = [max(cell_len(row[i]) for row in cells[1:]) if rows else 0 for i in range(len(heads))]
    shown = [i for i in range(len(heads)) if widths[i]]
    widths = [max(size, cell_len(head)) for size, head in zip(widths, heads, strict=True)]
    unasked = (4, 5, 6) if heads[3:7] == list(STATISTICS) else ()  # std, min, max
    for column in (len(heads) - 2, len(heads) - 1, *unasked, 1):
        if width is not None and column in shown and sum(widths[i] + 2 for i in shown) - 2 > width:
            shown.remove(column)
    lines = []
    for row_cells in cells if rows else ():
        padded = [_padded(row_cells[i], widths[i], right=i in numbers) for i in shown]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, f"{len(rows)} found"])


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _sharding_remarks(trace: TraceData) -> Iterator[str]:
    """Yield what the shapes of distributed tensors mean, where the tree has any."""
    results = [value for call in trace.calls if (value := main_output(call)) is not None and value.sharding]
    rank = trace.settings.get("rank")
    where = f" of rank {rank}" if isinstance(rank, int) else ""
    shard = next((value for value in results if value.sharding is not None and value.sharding.is_shard), None)
    if shard is not None and shard.sharding is not None:
        part = f"{shape_text(shard.shape)}{_part(shard.sharding)}"
        yield f"{part}: the local shard{where}; statistics are of this shard"
    if any(value.sharding is not None and value.sharding.is_partial for value in results):
        yield f"partial: the term{where} of a sum over the ranks that is still to be taken"


def write_text(trace: TraceData, path: Path, *, width: int = 100, fold: bool = True, depth: int | None = None) -> Path:
    """Write the tree as a text file."""
    return write_file(path, tree(trace, width=width, color=False, fold=fold, depth=depth) + "\n")
