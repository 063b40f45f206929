"""A comparison on one screen: the verdict, the first finding with the numbers of both sides, the calls it reaches."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from rich.console import RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from fxdebug.cells import cell_len, padded, shortened_to
from fxdebug.comparison.result import ComparisonData, Counts, Row
from fxdebug.data.trace import TraceData
from fxdebug.exports.columns import number
from fxdebug.exports.comparison.finding import error_of, fact, finding_details, how_to_see_more
from fxdebug.exports.comparison.folding import (
    call_patterns,
    error_chain,
    group_by_pattern,
    operation_patterns,
)
from fxdebug.exports.ranges import path_range
from fxdebug.exports.screen import Screen, wants_color
from fxdebug.files.write_file import write_text as write_file
from fxdebug.printable import printable

# Colours of middle lightness: a notebook's page may be light or dark, and the cell cannot know which.
_HUES = [(0, 0, 0), (217, 69, 61), (42, 140, 70), (154, 122, 0), (66, 128, 206), (163, 92, 196), (11, 134, 173)]
_ANY_PAGE = TerminalTheme((255, 255, 255), (0, 0, 0), [*_HUES, (122, 122, 122)])
LARGEST = 64 * 1024  # bytes in a notebook, which saves them and shows them again
_CELL = 100  # columns in a notebook
FURTHER = 8  # findings after the first, and unmatched patterns of each side, that are shown by default
_BASIS = {
    "tensors": "element by element",
    "sample": "by statistics and a sample of elements: a lower bound",
    "statistics": "by statistics: a lower bound",
}  # fmt: skip


def screen(
    comparison: ComparisonData, *, width: int | None = None, color: bool | None = None, fold: bool = True
) -> str:
    """Return the comparison as text: the verdict, the first finding, its chain, further findings, unmatched calls.

    ``width`` and ``color`` default to the terminal's (80 columns and none where output is piped).
    ``fold=False`` shows every finding, every call of the chain and every call without a partner.
    """
    if width is None:
        width = shutil.get_terminal_size().columns
    if color is None:
        color = wants_color()
    console = Screen(width, color)
    for part in _parts(comparison, width, fold):
        console.print(part)
    return console.text().rstrip()


def html(comparison: ComparisonData, *, width: int = 100, fold: bool = True) -> str:
    """Return the same as a piece of HTML without script or network, for notebooks and e-mails."""
    return _html(_parts(comparison, width, fold), width)


def cell(comparison: ComparisonData) -> str:
    """Return the same for a notebook, in at most 64 KiB: of a long one the most important lines."""
    parts = list(_parts(comparison, _CELL, True))
    shown = _html(parts, _CELL)
    while len(shown.encode()) > LARGEST and parts:
        parts = parts[: len(parts) * 3 // 4]
        shown = _html([*parts, Text("… comparison.show() has all of it", "yellow")], _CELL)
    return shown


def _html(parts: Iterable[RenderableType], width: int) -> str:
    console = Screen(width, True, record=True)
    for part in parts:
        console.print(part)
    style = "font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;overflow-x:auto"
    return console.export_html(
        theme=_ANY_PAGE, inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
    ).rstrip()


def write_text(comparison: ComparisonData, path: Path, *, width: int = 100, fold: bool = True) -> Path:
    """Write the screen as a text file."""
    return write_file(path, screen(comparison, width=width, color=False, fold=fold) + "\n")


# The parts -----------------------------------------------------------------------------------------


def _parts(comparison: ComparisonData, width: int, fold: bool) -> Iterator[RenderableType]:
    """Yield all parts of the screen, the most important first."""
    yield verdict(comparison)
    yield from _sides(comparison, width)
    yield from _coverage(comparison)
    if comparison.first is not None:
        yield ""
        yield from finding_details(comparison, comparison.first, width)
    yield from error_chain(comparison, width, fold)
    yield from _outputs(comparison, width)
    yield from _further(comparison, width, fold)
    if comparison.gradients is not None:
        yield ""
        yield Text(f"gradients: {printable(comparison.gradients.answer)}", "bold")
    yield from _unmatched(comparison, width, fold)
    notes = list(comparison.notes)
    if notes:
        yield ""
    for note in notes[: None if not fold else FURTHER]:
        yield Text(f"note: {note}", "yellow")
    if fold and len(notes) > FURTHER:
        yield Text(f"and {_plural(len(notes) - FURTHER, 'more note')} in comparison.notes", "yellow")


def verdict(comparison: ComparisonData) -> Text:
    """Return the first lines: different, could not compare and why, or equal and how nearly."""
    first = comparison.first
    if first is not None:
        at = f"first at {printable(_call_of(first))}" + (f", operation {printable(first.op)}" if first.op else "")
        return Text.assemble(("different: ", "bold red"), (at, "bold"))
    if comparison.gradients_differ:
        return Text.assemble(("different: ", "bold red"), ("the gradients; the forwards ", "bold"), _alike(comparison))
    if comparison.missing:
        return Text.assemble(("could not compare: ", "bold yellow"), (printable(comparison.missing[0]), "bold"))
    narrow, stand_in = comparison.narrow, comparison.coverage.stand_in
    equal = "equal within tolerance" if narrow is None else f"no difference beyond what {narrow} explains"
    if _drifted(comparison):
        equal = "no operation adds a difference"
    if stand_in:
        equal += f", as far as the file{'s go' if len(stand_in) > 1 else f' of {stand_in} goes'}"
    calls, operations = comparison.coverage.calls, comparison.coverage.operations
    style = "bold green" if tone(comparison) == "good" else "bold yellow"
    text = Text.assemble((f"{equal}: ", style), _plural(calls.compared, "call"))
    if operations.compared:
        text.append(f", {_plural(operations.compared, 'operation')}")
    return text.append("\n").append_text(_largest_difference(comparison))


def _alike(comparison: ComparisonData) -> str:
    """Say how nearly two forwards without a finding are equal."""
    if comparison.missing:
        return f"could not be compared: {printable(comparison.missing[0])}"
    narrow = comparison.narrow
    return "are equal within tolerance" if narrow is None else f"have no difference beyond what {narrow} explains"


def _largest_difference(comparison: ComparisonData) -> Text:
    """Return a line on the largest difference of equal runs, and one on the outputs where they differ after all."""
    worst, text = comparison.worst, Text()
    if worst is None or not worst.error:
        bases = {row.basis for row in comparison.rows if row.measured and row.certain}
        weakest = next((basis for basis in ("statistics", "sample") if basis in bases), None)
        return text.append(
            "no difference at all" if weakest is None else f"no difference {_basis(comparison, weakest)}"
        )
    at = f"{number(worst.error)} at {printable(worst.where)}, {_basis(comparison, worst.basis)}"
    text.append(f"largest difference {at}")
    differing = _drifted(comparison)
    if differing:
        furthest = max(differing, key=lambda row: row.error)
        why = (
            "what is ignored, or rounding that adds up"
            if comparison.settings.get("ignore")
            else "rounding that adds up"
            if comparison.narrow is None
            else f"rounding that adds up, or what {comparison.narrow} hides"
        )
        text.append(f"\nwhat was returned differs by {error_of(furthest)}: {why}", "yellow")
    return text


def tone(comparison: ComparisonData) -> Literal["good", "warn", "bad"]:
    """Return how the verdict is coloured: ``warn`` where too much is missing, or results differ by what adds up."""
    if comparison.findings or comparison.gradients_differ:
        return "bad"
    return "warn" if comparison.missing or _drifted(comparison) else "good"


def _drifted(comparison: ComparisonData) -> list[Row]:
    """Return the results that differ although nothing was found that makes them differ."""
    if comparison.findings:
        return []
    return [row for row in comparison.outputs if row.measured and row.verdict != "equal"]


def _basis(comparison: ComparisonData, basis: str) -> str:
    """Return as text what a measure was taken from, and how to see more where a run kept less than it could."""
    more = how_to_see_more(comparison) if basis == "statistics" else ""
    return f"{_BASIS[basis]}, {more}" if more else _BASIS[basis]


def _coverage(comparison: ComparisonData) -> Iterator[RenderableType]:
    """Yield how many calls, operations and returned values were compared, of how many; and what else is missing."""
    coverage = comparison.coverage
    parts = [_count(coverage.calls, "call")]
    if coverage.operations.a or coverage.operations.b:
        parts.append(_count(coverage.operations, "operation"))
    parts.append(_returned_count(comparison))
    yield fact("compared", "; ".join(parts))
    for text in comparison.missing[0 if comparison.findings else 1 :]:
        yield fact("missing", printable(text), "yellow")


def _count(counts: Counts, what: str) -> str:
    compared, a, b = counts
    if compared == a == b == 1:
        return f"the {what}"
    if a == b:
        return f"{'all ' if compared == a else ''}{_plural(compared, what)}{'' if compared == a else f' of {a}'}"
    return f"{_plural(compared, what)} of {a} in a and {b} in b"


def _returned_count(comparison: ComparisonData) -> str:
    """Return how many of the returned values were compared, as text."""
    counts, stand_in = comparison.coverage.returned, comparison.coverage.stand_in
    if stand_in:
        found = f"{_plural(counts.compared, 'value')} of inner calls" if counts.compared else "nothing"
        return f"{found} in place of what was returned, which the file of {' and of '.join(stand_in)} does not have"
    if not counts.a + counts.b:
        raised = comparison.a.error is not None or comparison.b.error is not None
        return "nothing returned, as a run raised" if raised else "no tensors returned"
    return _count(counts, "returned value")


def _sides(comparison: ComparisonData, width: int) -> Iterator[Text]:
    """Yield a line for a and one for b: model, size and folder."""
    facts = [(side, *_described(trace)) for side, trace in (("a", comparison.a), ("b", comparison.b))]
    sizes = [max(cell_len(fact[i]) for fact in facts) for i in (1, 2)]
    for side, model, size, where in facts:
        line = Text.assemble((f"  {side}  ", "bold"), padded(model, sizes[0]), "  ", (padded(size, sizes[1]), "dim"))
        line.append(f"  {where}", "dim")
        line.truncate(width, overflow="ellipsis")
        yield line


def _described(trace: TraceData) -> tuple[str, str, str]:
    """Return model, size, and the folder where it was saved."""
    dtypes = sorted({p.dtype for p in trace.parameters if p.kind == "parameter"})
    size = _plural(len(trace.calls), "call") + (f", {', '.join(dtypes[:3])}" if dtypes else "")
    folder = "" if trace.folder is None else str(trace.folder)
    if "call" in trace.settings:  # it is one call of a run
        folder = f"{trace.settings['call']} of {trace.settings.get('of')}  {folder}"
    return printable(trace.model), size, printable(folder.rstrip())


def _outputs(comparison: ComparisonData, width: int) -> Iterator[Text]:
    """Yield the outputs of the models with their errors."""
    rows = [row for row in comparison.outputs if row.measured]
    if not rows:
        return
    yield Text("\nreturned", "bold")
    groups = group_by_pattern(rows, lambda row: row.op or "")
    names = [printable(path_range([row.op or (row.b.type if row.b else "") for row in group])) for group in groups]
    room = min(max(map(cell_len, names[:FURTHER])), width // 2)
    for name, group in zip(names[:FURTHER], groups):
        worst = max(group, key=lambda row: row.error)
        is_equal = all(row.verdict == "equal" for row in group)
        mark = ("equal", "green") if is_equal else ("differs", "red" if comparison.findings else "yellow")
        yield _line(
            [(padded(shortened_to(name, room, "ends"), room), ""), (padded(error_of(worst), 11, right=True), ""), mark],
            width,
        )
    if len(groups) > FURTHER:
        yield Text(f"  and {sum(map(len, groups[FURTHER:]))} more in comparison.outputs", "dim")


def _further(comparison: ComparisonData, width: int, fold: bool) -> Iterator[Text]:
    """Yield the other findings, one line each."""
    if len(comparison.findings) < 2:
        return
    first, *rest = comparison.causes
    groups = [list(rows) for rows in (first[1:], *rest) if rows]
    others = [row for rows in groups for row in rows]
    groups = groups if fold else [[row] for row in others]
    remark = "each with what a was given" if comparison.settings.get("isolated") else "which may follow from the first"
    yield Text.assemble((f"\n{_plural(len(others), 'further finding')}", "bold"), (f", {remark}", "dim"))
    shown = [rows[0] for rows in groups[: FURTHER if fold else None]]
    counts = [f" ×{len(rows)}" if len(rows) > 1 else "" for rows in groups]
    names = [printable(f"{_call_of(row)}/{row.op}" if row.op else _call_of(row)) for row in shown]
    room = min(max(cell_len(name + count) for name, count in zip(names, counts)), max(width * 5 // 9, 24))
    for name, count, row in zip(names, counts, shown):
        because = printable(row.because.replace(f"{row.path}.", "") if row.path else row.because)
        where = padded(shortened_to(name, room - cell_len(count), "ends") + count, room)
        effect = "" if row.effect is None else f"effect {number(row.effect)}"
        yield _line([(where, ""), (str(row.kind), "red"), (effect, ""), (because, "dim")], width)
    if len(groups) > len(shown):
        yield Text(f"  and {sum(map(len, groups[len(shown) :]))} more in comparison.findings", "dim")


def _unmatched(comparison: ComparisonData, width: int, fold: bool) -> Iterator[Text]:
    """Yield the calls of either run that have no counterpart, then such operations in the other calls."""
    coverage = comparison.coverage
    for side, calls, sides in (
        ("a", comparison.only_a, coverage.operations_a),
        ("b", comparison.only_b, coverage.operations_b),
    ):
        if calls:
            yield Text(f"\nonly in {side}: {_plural(len(calls), 'call')}", "bold")
            lines = call_patterns(calls) if fold else [(call.id, call.type) for call in calls]
            yield from _named_lines(lines, f"only_{side}", width, fold)
        if sides:
            inside = " in calls with a counterpart" if calls else ""
            yield Text(f"\nonly in {side}: {_plural(len(sides), 'operation')}{inside}", "bold")
            lines = operation_patterns(sides, fold)
            yield from _named_lines(lines, f"coverage.operations_{side}", width, fold)


def _named_lines(lines: Sequence[tuple[str, str]], where: str, width: int, fold: bool) -> Iterator[Text]:
    for name, kind in lines[: FURTHER if fold else None]:
        yield _line([(printable(name), ""), (printable(kind), "cyan")], width)
    if fold and len(lines) > FURTHER:
        yield Text(f"  and {len(lines) - FURTHER} more in comparison.{where}", "dim")


# Words ---------------------------------------------------------------------------------------------


def _line(cells: list[tuple[str, str]], width: int) -> Text:
    """Join the cells of one line, indented; a long line is cut at its end."""
    line = Text("  ")
    for position, (text, style) in enumerate(cells):
        line.append("  " if position else "").append(text, style)
    line.truncate(width, overflow="ellipsis")
    return line


def _call_of(row: Row) -> str:
    """Return the path of a row; for the root its class."""
    side = row.b or row.a
    return row.path or (side.type if side is not None else "the model")


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
