"""The call tree as HTML without scripts: the display of a Trace in a notebook, and a page's text without JavaScript."""

from __future__ import annotations

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.exports.columns import number, shapes
from fxdebug.exports.html import escape
from fxdebug.exports.text import headline, not_finite, remarks
from fxdebug.query.folding import FoldedCalls, Row, fold_repeated, main_output

_STYLE = """
.fxd{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;max-width:72em;overflow-x:auto}
.fxd details>:not(summary){margin-left:1.1em}
.fxd summary,.fxd .leaf{display:flex;gap:1em;padding:1px 4px;border-radius:3px;cursor:default;white-space:pre}
.fxd summary{cursor:pointer}
.fxd summary:hover,.fxd .leaf:hover{background:rgba(127,127,127,.14)}
.fxd summary::before{content:"▸";width:1em;margin-right:-1em;opacity:.6}
.fxd details[open]>summary::before{content:"▾"}
.fxd .leaf::before{content:"";width:1em;margin-right:-1em}
.fxd .name{flex:1 1 9em;min-width:9em;overflow:hidden;text-overflow:ellipsis}
.fxd .type{color:#0b86ad}
.fxd .shape{flex:0 0 10em;overflow:hidden;text-overflow:ellipsis}
.fxd .dim{opacity:.65}
.fxd .num{flex:0 0 5em;text-align:right}
.fxd .odd{flex:0 0 13em;overflow:hidden;text-overflow:ellipsis}
.fxd .bad{color:#8b0000;background:#ffd9d6;border-radius:3px;padding:0 3px;font-weight:600;box-sizing:border-box}
.fxd .head{font-weight:600;padding:2px 4px}
.fxd .note{padding:2px 4px;color:#5c3a00;background:#fff1cf;border-radius:3px;width:fit-content;max-width:100%}
"""
_OPEN_LEVELS = 2  # levels of the tree that are open at first
LARGEST = 64 * 1024  # bytes in a notebook: a cell is saved with the notebook, and shown again when it is opened
MOST_LETTERS = 200  # of one name or remark


def cell(trace: TraceData) -> str:
    """Return the tree for a notebook in at most 64 KiB: of a large run without its lowest levels."""
    deepest = max((call.depth for call in trace.calls), default=0)
    whole: list[tuple[int | None, bool]] = [(None, True), (None, False)]
    for depth, titles in whole + [(depth, False) for depth in range(min(deepest, 12) - 1, -1, -1)]:
        shown = tree(trace, depth, titles)
        if len(shown.encode()) <= LARGEST:
            return shown
    return f'<div class="fxd">{escape(_short(headline(trace).plain))}: too large to be shown here</div>'


def tree(trace: TraceData, depth: int | None = None, titles: bool = True) -> str:
    """Return a collapsible tree without scripts or links, down to ``depth`` levels below the root.

    ``titles``: with path and source line where the mouse is over a name.
    """
    columns = "".join(f'<span class="num dim">{name}</span>' for name in ("mean", "std", "min", "max"))
    odd = any(map(_is_bad, trace.calls))
    header = (
        '<div class="leaf"><span class="name dim">call</span><span class="shape dim">out</span>'
        f'<span class="num dim">dtype</span>{columns}{_odd("not finite") if odd else ""}</div>'
    )
    notes = "".join(
        f'<div class="note">{escape(_short(text.plain, 5 * MOST_LETTERS))}</div>' for text in remarks(trace)
    )
    if depth is not None:
        notes += f'<div class="note">calls deeper than {depth} levels are left out: trace.show() has all of them</div>'
    return (
        f'<div class="fxd"><style>{_STYLE}</style><div class="head">{escape(_short(headline(trace).plain))}</div>'
        f"{header}{_rows(fold_repeated(trace, depth=depth), titles, odd)}{notes}</div>"
    )


def _is_bad(call: Call) -> bool:
    value = main_output(call)
    return value is not None and value.stats is not None and value.stats.finite < value.stats.count


def _odd(text: str, style: str = "dim") -> str:
    """Return the last cell of a row; where one row has it, all have, as the columns before it would move."""
    return f'<span class="odd"><span class="{style}">{escape(text)}</span></span>'


def _rows(root: FoldedCalls, titles: bool, odd: bool) -> str:
    """Return all rows, depth first and without recursion: models may be nested deeper than Python can recurse."""
    pieces: list[str] = []
    pending: list[tuple[Row, int] | str] = [(root, 0)]
    while pending:
        entry = pending.pop()
        if isinstance(entry, str):
            pieces.append(entry)
            continue
        row, depth = entry
        if not row.children:
            pieces.append(f'<div class="leaf">{_cells(row, titles, odd)}</div>')
            continue
        pieces.append(
            f"<details{' open' if depth < _OPEN_LEVELS else ''}><summary>{_cells(row, titles, odd)}</summary>"
        )
        pending.append("</details>")
        pending.extend((child, depth + 1) for child in reversed(row.children))
    return "".join(pieces)


def _cells(row: Row, titles: bool, odd: bool) -> str:
    if not isinstance(row, FoldedCalls):
        return f'<span class="name">{escape(_short(row.name))}</span>'
    call, value, stats = row.first, main_output(row.first), row.stats()
    bad = stats is not None and stats.finite < stats.count
    title = f"{_end(call.path or call.type)}  ({_end(call.source or 'source unknown')})"
    shown_title = f' title="{escape(title)}"' if titles else ""
    kind = "" if row.name == call.type else f' <span class="type">{escape(_short(call.type))}</span>'
    cells = [f'<span class="name"{shown_title}>{escape(_short(row.name))}{kind}</span>']
    if call.error is not None:
        return cells[0] + f'<span class="bad">raised {escape(_short(str(call.error)))}</span>'
    cells.append(f'<span class="shape">{escape(shapes([call.outputs for call in row.calls]))}</span>')
    cells.append(f'<span class="num dim">{escape("" if value is None else value.dtype)}</span>')
    numbers = ("",) * 4 if stats is None else [number(x) for x in (stats.mean, stats.std, stats.min, stats.max)]
    cells += [f'<span class="num{" bad" if bad and text else ""}">{escape(text)}</span>' for text in numbers]
    if odd:
        cells.append(_odd(not_finite(stats), "bad") if stats is not None and bad else '<span class="odd"></span>')
    return "".join(cells)


def _short(text: str, most: int = MOST_LETTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _end(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"…{text[1 - most :]}"
