"""The call tree as HTML: the display of a Trace in a notebook, and a page of its own."""

from __future__ import annotations

from html import escape as _escaped
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.exports.text import headline, not_finite, number, remarks, shapes
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable_lines
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
.fxd .name{flex:1 1 12em;min-width:12em;overflow:hidden;text-overflow:ellipsis}
.fxd .type{color:#0b86ad}
.fxd .shape{flex:0 0 13em;overflow:hidden;text-overflow:ellipsis}
.fxd .dim{opacity:.65}
.fxd .num{flex:0 0 5em;text-align:right}
.fxd .bad{color:#8b0000;background:#ffd9d6;border-radius:3px;padding:0 3px;font-weight:600}
.fxd .head{font-weight:600;padding:2px 4px}
.fxd .note{padding:2px 4px;color:#5c3a00;background:#fff1cf;border-radius:3px;width:fit-content;max-width:100%}
"""
_OPEN_LEVELS = 2  # levels of the tree that are open at first


def escape(text: str) -> str:
    """Return text for HTML, also inside quotes; line breaks are kept."""
    return _escaped(printable_lines(text), quote=True)


def tree(trace: TraceData) -> str:
    """Return a collapsible tree without scripts or links, for any notebook and for e-mail."""
    columns = "".join(f'<span class="num dim">{name}</span>' for name in ("mean", "std", "min", "max"))
    header = (
        '<div class="leaf"><span class="name dim">call</span><span class="shape dim">out</span>'
        f'<span class="num dim">dtype</span>{columns}</div>'
    )
    notes = "".join(f'<div class="note">{escape(text.plain)}</div>' for text in remarks(trace))
    return (
        f'<div class="fxd"><style>{_STYLE}</style><div class="head">{escape(headline(trace).plain)}</div>'
        f"{header}{_rows(fold_repeated(trace))}{notes}</div>"
    )


def write_page(trace: TraceData, path: Path) -> Path:
    """Write the tree as a page of its own."""
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(trace.model)}</title></head>'
    return write_text(path, f'{head}<body style="margin:1em;color-scheme:light dark">{tree(trace)}</body></html>')


def _rows(root: FoldedCalls) -> str:
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
            pieces.append(f'<div class="leaf">{_cells(row)}</div>')
            continue
        pieces.append(f"<details{' open' if depth < _OPEN_LEVELS else ''}><summary>{_cells(row)}</summary>")
        pending.append("</details>")
        pending.extend((child, depth + 1) for child in reversed(row.children))
    return "".join(pieces)


def _cells(row: Row) -> str:
    if not isinstance(row, FoldedCalls):
        return f'<span class="name">{escape(row.name)}</span>'
    call, value, stats = row.first, main_output(row.first), row.stats()
    bad = stats is not None and stats.finite < stats.count
    title = escape(f"{call.path or call.type}  ({call.source or 'source unknown'})")
    kind = "" if row.name == call.type else f' <span class="type">{escape(call.type)}</span>'
    cells = [f'<span class="name" title="{title}">{escape(row.name)}{kind}</span>']
    if call.error is not None:
        return cells[0] + f'<span class="bad">raised {escape(str(call.error))}</span>'
    cells.append(f'<span class="shape">{escape(shapes([call.outputs for call in row.calls]))}</span>')
    cells.append(f'<span class="num dim">{escape("" if value is None else value.dtype)}</span>')
    numbers = ("",) * 4 if stats is None else [number(x) for x in (stats.mean, stats.std, stats.min, stats.max)]
    cells += [f'<span class="num{" bad" if bad else ""}">{escape(text)}</span>' for text in numbers]
    if stats is not None and bad:
        cells.append(f'<span class="bad">{escape(not_finite(stats))}</span>')
    return "".join(cells)
