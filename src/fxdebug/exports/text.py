"""The call tree as text on a terminal, by rich: one line for a call, repeated layers folded, aligned columns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from fxdebug.analyses.measures import why_unknown
from fxdebug.cells import cell_len, padded, shortened_to, wrapped
from fxdebug.data.measures import Unit, quantity
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats, shape_text
from fxdebug.exports.columns import Column, columns_of, number, part_text, require_columns
from fxdebug.exports.ranges import path_ranges
from fxdebug.exports.records import STATISTICS as SHOWN
from fxdebug.exports.records import FoundRow
from fxdebug.exports.screen import Screen, wants_color
from fxdebug.files.write_file import write_text as write_file
from fxdebug.printable import printable
from fxdebug.query.folding import FoldedCalls, Row, fold_repeated, main_output, times
from fxdebug.query.measures import STATISTICS, Number

WIDE = 110  # columns of a terminal from which inputs are shown too
NAME, SHORT_NAME = 24, 16  # characters for the names of calls: with fewer, other columns are left out
_LEAST_NAME = 4  # columns of a name that are shown however little room there is


_DEFAULT = ("output", "dtype", "mean", "std", "min", "max")
_WIDE_DEFAULT = ("input", *_DEFAULT)
_OF_RESULTS = frozenset((*_DEFAULT, *STATISTICS, "not finite"))

# Columns that may be left out, in this order, until the names of calls have room for this many characters.
_ROOM_NEEDED = {
    **dict.fromkeys(("input", "dtype", "std", "min"), NAME),
    **dict.fromkeys(("max", "output", "mean"), SHORT_NAME),
}


def tree(
    trace: TraceData,
    *,
    width: int | None = None,
    color: bool | None = None,
    fold: bool = True,
    depth: int | None = None,
    columns: str | Sequence[str] | None = None,
) -> str:
    """Return the whole trace as text: a headline, the tree with statistics of each call's first output, notes.

    ``width`` and ``color`` default to the terminal's (80 columns and none where output is piped).
    ``fold=False`` shows every layer; ``depth`` limits the levels. ``columns`` are names of measures and facts to show
    in place of the statistics. Raises ``UsageError`` for a column that the run does not have.
    """
    asked = None if columns is None else require_columns(trace, columns)
    if width is None:
        width = shutil.get_terminal_size().columns
    if color is None:
        color = wants_color()
    console = Screen(width, color)
    console.print(headline(trace))
    table, left_out = _table(trace, fold_repeated(trace, fold=fold, depth=depth), width, asked)
    console.print(table)
    if left_out and asked is not None:
        console.print(Text(f"no room in {width} columns for {', '.join(left_out)}", "yellow"))
    for why in why_unknown(trace, asked or ()):
        console.print(Text("\n".join(wrapped(printable(why), width)), "yellow"))
    for line in remarks(trace):
        console.print(line)
    return console.text()


def headline(trace: TraceData) -> Text:
    """Return the first line: the model, its calls and values, and the duration."""
    calls, values = len(trace.calls), len(trace.values)
    parts = [
        f"{calls} call{'s' * (calls != 1)}",
        f"{values} value{'s' * (values != 1)}",
    ]
    if trace.duration or trace.root.outputs is not None:  # of a run that still goes on it is not known
        parts.append(f"{trace.duration * 1e3:.1f} ms")
    if trace.root.method != "forward":
        parts.insert(0, trace.root.method)
    return Text.assemble((trace.model, "bold"), "  ", " · ".join(parts))


def _table(
    trace: TraceData, root: FoldedCalls, width: int, asked: Sequence[str] | None
) -> tuple[Table, tuple[str, ...]]:
    """Return the table, and the names of the columns that it has no room for."""
    rows = list(_rows_with_guides(root, width))
    names = asked if asked is not None else _WIDE_DEFAULT if width >= WIDE else _DEFAULT
    columns = columns_of(trace, [row for row, _ in rows], names)
    if asked is None and any(v.stats is not None and v.stats.finite < v.stats.count for v in trace.values):
        columns.append(_not_finite(rows))
    labels = [_label(row, lead) for row, lead in rows]
    longest = max(len("call"), *(label.cell_len for label in labels))
    cells = [[_cell(column, row, text) for (row, _), text in zip(rows, column.cells)] for column in columns]
    heads = [max(map(cell_len, column.heading.split("\n"))) for column in columns]
    sizes = [max(head, *(text.cell_len for text in texts)) for head, texts in zip(heads, cells)]
    left_out, room = _without_room(columns, sizes, longest, width, asked)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("call", no_wrap=True, max_width=room)
    shown = [i for i, column in enumerate(columns) if column.name not in left_out]
    for i in shown:
        side: JustifyMethod = "left" if columns[i].measure is None else "right"
        table.add_column(columns[i].heading, justify=side, no_wrap=True, max_width=sizes[i])
    for position, (row, lead) in enumerate(rows):
        table.add_row(_label(row, lead, room), *[cells[i][position] for i in shown])
    return table, left_out


def _without_room(
    columns: Sequence[Column], sizes: Sequence[int], longest: int, width: int, asked: Sequence[str] | None
) -> tuple[tuple[str, ...], int]:
    """Return the columns to leave out and the characters left for names: no number is cut.

    Columns that were asked for are left out from the last one on.
    """
    needed = _ROOM_NEEDED if asked is None else dict.fromkeys(reversed(asked), SHORT_NAME)
    left = {column.name: size + 1 for column, size in zip(columns, sizes, strict=True)}
    left_out = []
    for name, room in needed.items():
        if width - sum(left.values()) >= min(room, longest):
            break
        if name in left:
            del left[name]
            left_out.append(name)
    return tuple(reversed(left_out)), max(width - sum(left.values()), SHORT_NAME)


def _not_finite(rows: Sequence[tuple[Row, str]]) -> Column:
    """Return the column of NaN and infinities, which only runs with some of them have."""
    stats = [row.stats() if isinstance(row, FoldedCalls) and row.first.error is None else None for row, _ in rows]
    return Column("not finite", "not finite", tuple(["" if one is None else not_finite(one) for one in stats]))


def _rows_with_guides(root: FoldedCalls, width: int) -> Iterator[tuple[Row, str]]:
    """Yield every row with the tree lines to draw before it; beyond ``width`` columns nothing is seen of them."""
    pending: list[tuple[Row, str, str]] = [(root, "", "")]
    while pending:
        row, lead, below = pending.pop()
        yield row, lead
        last = len(row.children) - 1
        for position, child in reversed(list(enumerate(row.children))):
            guides = ("└ ", "  ") if position == last else ("├ ", "│ ")
            lines = (below, below) if len(below) > width else (below + guides[0], below + guides[1])
            pending.append((child, *lines))


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


def _cell(column: Column, row: Row, text: str) -> Text:
    """Return a cell of a row; a call that raised has its exception in place of results."""
    if not isinstance(row, FoldedCalls):
        return Text("")
    call, stats = row.first, row.stats()
    if call.error is not None and column.name in _OF_RESULTS:
        raised = {"output": "raised", "dtype": call.error.type if call.error.here else ""}
        return Text(raised.get(column.name, ""), "bold red" if column.name == "output" else "red")
    bad = stats is not None and stats.finite < stats.count and column.name in _OF_RESULTS
    style = {"input": "", "output": "", "dtype": "dim", "not finite": "bold red"}.get(column.name, "red" if bad else "")
    return Text(text, style)


def _outermost(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths that are not below another one of them."""
    known = set(paths)
    above = {path: {path[:i] for i, letter in enumerate(path) if letter == "."} for path in paths}
    return tuple(path for path in paths if not above[path] & known)


def not_finite(stats: Stats) -> str:
    """Return the counts of elements that are not finite: ``3 NaN, 1 −Inf``."""
    counts = ((stats.nan, "NaN"), (stats.posinf, "+Inf"), (stats.neginf, "−Inf"))
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def remarks(trace: TraceData) -> list[Text]:
    """Return the lines below the tree: where the run raised, modules never called, the first notes."""
    remarks: list[Text] = []

    def add(text: str, style: str) -> None:
        remarks.append(Text(text, style))

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
    for by, taken in names_by_origin(trace).items():
        add(f"measured by {by.partition(',')[0]}: {', '.join(taken)}", "dim")
    for note in trace.notes[:5]:
        add(f"note: {note.where + ': ' if note.where else ''}{note.what}", "yellow")
    if len(trace.notes) > 5:
        add(f"and {len(trace.notes) - 5} more notes in trace.notes", "yellow")
    return remarks


def names_by_origin(trace: TraceData) -> dict[str, list[str]]:
    """Return the names of the measures that were taken, by the analysis and settings that they come from."""
    found: dict[str, list[str]] = {}
    for name, taken in trace.taken.items():
        found.setdefault(taken.by, []).append(name)
    return found


def listing(rows: Sequence[FoundRow], width: int | None = None) -> str:
    """Return the rows in columns under a line of their names, and the number of rows last.

    Where ``width`` is too small, columns are left out: the status, the source, statistics that were not asked for, the
    kind, the mean, the shape. Ids and what was asked for are never cut.
    """
    heads = ["id", "type" if not rows or rows[0].is_call else "operation", "out", *(rows[0].facts if rows else ())]
    numbers = range(3, len(heads))
    heads += ["not finite", "status", "source"]
    cells = [heads]
    for row in rows:
        line = "" if row.source is None else row.source.rpartition("/")[2]
        bad = row.stats is not None and row.stats.finite < row.stats.count
        facts = [_fact(fact, row.units.get(name, "")) for name, fact in row.facts.items()]
        finite = not_finite(row.stats) if row.stats is not None and bad else ""
        cells.append(
            [printable(text) for text in (row.id, row.kind, row.label, *facts, finite, row.status or "", line)]
        )
    widths = [max(cell_len(row[i]) for row in cells[1:]) if rows else 0 for i in range(len(heads))]
    shown = [i for i in range(len(heads)) if widths[i]]
    widths = [max(size, cell_len(head)) for size, head in zip(widths, heads, strict=True)]
    unasked = (4, 5, 6) if heads[3:7] == list(SHOWN) else ()  # std, min, max
    for column in (len(heads) - 2, len(heads) - 1, *unasked, 1, *((3,) if unasked else ()), 2):
        if width is not None and column in shown and sum(widths[i] + 2 for i in shown) - 2 > width:
            shown.remove(column)
    lines = []
    for row_cells in cells if rows else ():
        columns = [padded(row_cells[i], widths[i], right=i in numbers) for i in shown]
        lines.append("  ".join(columns).rstrip())
    return "\n".join([*lines, f"{len(rows)} found"])


def _fact(fact: Number | str, unit: Unit) -> str:
    """Return a fact that was asked for: a number with its unit."""
    if isinstance(fact, str):
        return fact
    return quantity(fact, unit) if unit and isinstance(fact, (int, float)) else number(fact)


def _sharding_remarks(trace: TraceData) -> Iterator[str]:
    """Yield what the shapes of distributed tensors mean, where the tree has any."""
    results = [value for call in trace.calls if (value := main_output(call)) is not None and value.sharding]
    rank = trace.settings.get("rank")
    where = f" of rank {rank}" if isinstance(rank, int) else ""
    shard = next((value for value in results if value.sharding is not None and value.sharding.is_shard), None)
    if shard is not None and shard.sharding is not None:
        part = f"{shape_text(shard.shape)}{part_text(shard.sharding)}"
        yield f"{part}: the local shard{where}; statistics are of this shard"
    if any(value.sharding is not None and value.sharding.is_partial for value in results):
        yield f"partial: the term{where} of a sum over the ranks that is still to be taken"


def write_text(
    trace: TraceData,
    path: Path,
    *,
    width: int = 100,
    fold: bool = True,
    depth: int | None = None,
    columns: str | Sequence[str] | None = None,
) -> Path:
    """Write the tree as a text file."""
    return write_file(path, tree(trace, width=width, color=False, fold=fold, depth=depth, columns=columns) + "\n")
