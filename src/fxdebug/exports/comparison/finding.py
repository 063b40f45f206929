"""Details of a finding: its kind, its line, and the numbers of both sides under each other."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fxdebug.cells import cell_len
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.result import KINDS, ComparisonData, Row
from fxdebug.data.values import Value, shape_text
from fxdebug.exports.columns import number
from fxdebug.exports.text import not_finite
from fxdebug.printable import printable

_LABEL = 9  # columns of the names of facts
_MOST = 6  # digits that may be needed to show a difference: the seventh of float32 is rounding
_MOST_OF_FLOAT64 = 12


def finding_details(comparison: ComparisonData, row: Row, width: int) -> Iterator[RenderableType]:
    """Yield the facts about a finding, one line each, and the table of both sides."""
    because = row.because or ("" if row.kind is None else KINDS[row.kind])
    yield fact(str(row.kind), printable(because), "bold red")
    if row.repair:
        yield fact("tried" if row.proven else "likely", printable(row.repair.removeprefix("likely: ")), "bold")
    yield from _places(comparison, row, width)
    if row.kind == "raised":
        return
    yield fact("error", _error_text(row))
    if row.effect is not None:
        yield fact("effect", _effect_text(comparison, row))
    if row.kind != "input":
        yield fact("matched", _match_text(row))
    sides = _table(row)
    if sides is not None:
        yield ""
        yield sides
    yield from _element_measures(comparison, row.measures)


def fact(name: str, text: str | Text, style: str = "dim") -> Table:
    """Return a name and its text, which wraps below itself."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=0)
    grid.add_column(width=max(_LABEL, cell_len(name)), no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("", Text(name, style), text)
    return grid


def _places(comparison: ComparisonData, row: Row, width: int) -> Iterator[RenderableType]:
    """Yield the place of a finding: the module, the line with its text, and the module in a if it has another path."""
    side = row.b or row.a
    if side is not None and row.path == side.path:
        yield fact(
            "in", Text.assemble(printable(row.path) or "the model itself", (f"  {printable(side.type)}", "cyan"))
        )
    else:
        yield fact("in", printable(row.path) or "the model itself")
    if row.source:
        yield fact("line", _line_with_text(comparison, row.source, width))
    if row.a is not None and row.b is not None and row.a.path != row.path:
        place = f"{row.a.path or row.a.type}/{row.a.op}" if row.a.op else row.a.path or row.a.type
        source = f"  {short(row.a.source)}" if row.a.source else ""
        yield fact("in a", Text.assemble(printable(place), (source, "dim")))


def short(source: str) -> str:
    """Return a source line without its folders.

    >>> short("/home/me/model.py:12")
    'model.py:12'
    """
    return printable(source.replace("\\", "/").rpartition("/")[2])


def _line_with_text(comparison: ComparisonData, source: str, width: int) -> Text:
    """Return the line's place, and its code where a trace has it."""
    text = comparison.b.source_lines.get(source) or comparison.a.source_lines.get(source)
    line_text = Text(short(source))
    if text:
        room = width - _LABEL - 8 - line_text.cell_len
        shown = Text(printable(text), "bold")
        shown.truncate(max(room, 24), overflow="ellipsis")
        line_text.append("  ").append_text(shown)
    return line_text


def error_of(row: Row) -> str:
    """Return an error as a short word.

    >>> error_of(Row("", error=0.0123456)), error_of(Row("", measures=Measures(math.inf, what="shape")))
    ('0.0123', 'other shape')
    """
    if row.measures.what in ("shape", "dtype"):
        return f"other {row.measures.what}"
    return "∞" if row.error == math.inf else number(row.error)


def _error_text(row: Row) -> str:
    """Return the error as text, with the tolerance and the error of the inputs."""
    if row.measures.what in ("shape", "dtype") and row.error == math.inf:
        return f"cannot be measured: the {row.measures.what}s differ"
    parts = [f"{error_of(row)} of the reference's size" if row.error < math.inf else "without bound"]
    if row.tolerance:
        parts.append(f"allowed {number(row.tolerance)}")
    if row.kind != "input":
        parts.append(_of_inputs(row.error_in))
    return ", ".join(parts)


def _of_inputs(error: float) -> str:
    if not error:
        return "what went in is equal"
    return "what went in differs" if error == math.inf else f"what went in differs by {number(error)}"


def _effect_text(comparison: ComparisonData, row: Row) -> str:
    """Return what a cause does to what is returned, and in how many places it stands."""
    places = next((len(rows) for rows in comparison.causes if row in rows), 1)
    where = "" if places == 1 else f", in {places} places together"
    return f"{number(row.effect or 0.0)} of what is returned{where}"


_MATCHED_BY = {
    "path": "by its path", "mapping": "as the mapping says", "weights": "by equal weights", "values": "by equal values",
    "dataflow": "by the flow of data", "order": "by order", "": "by the flow of data",
}  # fmt: skip


def _match_text(row: Row) -> str:
    known = _MATCHED_BY.get(row.how, row.how)
    return known if row.sure >= 1.0 else f"{known}, {row.sure:.0%} sure"


# Both sides ----------------------------------------------------------------------------------------


def _table(row: Row) -> Table | None:
    """Return a table with a line for each side: shape, dtype and statistics, with as many digits as they differ in."""
    values = [(name, side.value) for name, side in (("a", row.a), ("b", row.b)) if side is not None]
    known = [(name, value) for name, value in values if value is not None]
    if not known:
        return None
    columns = _columns([value for _, value in known])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", style="bold", width=3)
    for title, _ in columns:
        table.add_column(title, justify="left" if title in ("shape", "dtype", "not finite") else "right", no_wrap=True)
    for place, (name, _) in enumerate(known):
        row_cells = [Text(cells[place], "red" if len(set(cells)) > 1 else "") for _, cells in columns]
        table.add_row(f"  {name}", *row_cells)
    return table


def _columns(values: list[Value]) -> list[tuple[str, list[str]]]:
    columns = [("shape", [shape_text(v.shape) for v in values]), ("dtype", [v.dtype for v in values])]
    stats = [value.stats for value in values]
    most = _MOST_OF_FLOAT64 if {value.dtype for value in values} <= {"float64", "complex128"} else _MOST
    for name in ("mean", "std", "min", "max"):
        cells = distinguishable([None if s is None else getattr(s, name) for s in stats], most)
        if any(cells):
            columns.append((name, cells))
    not_finite_cells = ["" if s is None else not_finite(s) for s in stats]
    return [*columns, ("not finite", not_finite_cells)] if any(not_finite_cells) else columns


def distinguishable(numbers: list[float | int | complex | None], most: int = _MOST) -> list[str]:
    """Return numbers as text with the fewest digits that show a difference; short if ``most`` digits show none.

    >>> distinguishable([0.12345, 0.12346]), distinguishable([1.0, 2.0])
    (['0.12345', '0.12346'], ['1', '2'])
    >>> distinguishable([0.5, 0.5]), distinguishable([0.5, 0.50000001])
    (['0.5', '0.5'], ['0.5', '0.5'])
    """
    short = [number(x) for x in numbers]
    real = [x for x in numbers if isinstance(x, float)]
    if len(real) < 2 or len(set(short)) > 1 or len(set(real)) == 1:
        return short
    for digits in range(4, most + 1):
        cells = [f"{x:.{digits}g}" if isinstance(x, float) else number(x) for x in numbers]
        if len(set(cells)) > 1:
            return cells
    return short


def how_to_see_more(comparison: ComparisonData) -> str:
    """Return as text how elements can be compared, where a run did not keep its tensors; else empty."""
    lacking = [name for name in "ab" if getattr(comparison, name).settings.get("values") != "tensors"]
    too = f" in {lacking[0]}, too," if len(lacking) == 1 else ""
    return f'values="tensors"{too} shows every element' if lacking else ""


def _element_measures(comparison: ComparisonData, measures: Measures) -> Iterator[RenderableType]:
    """Yield the measures by elements, or a note that there are none."""
    parts = [
        f"{name} {number(measure) if name != 'cosine' else f'{measure:.6g}'}{unit}"
        for name, measure, unit in (
            ("max |a−b|", measures.max_abs, ""),
            ("mean", measures.mean_abs, ""),
            ("relative", measures.relative, ""),
            ("cosine", measures.cosine, ""),
            ("SQNR", measures.sqnr, " dB"),
            ("beyond tolerance", None if measures.beyond is None else measures.beyond * 100, " %"),
            ("ulp", measures.ulp, ""),
        )
        if measure is not None
    ]
    if parts:
        yield Text("\n  " + " · ".join(parts))
    elif measures.what in ("shape", "dtype", "unknown"):
        return
    elif measures.basis == "sample":
        yield Text("\n  statistics and a sample of elements: a lower bound", "dim")
    elif measures.basis == "statistics":
        more = how_to_see_more(comparison)
        yield Text(f"\n  statistics only: a lower bound{f'; {more}' if more else ''}", "dim")
