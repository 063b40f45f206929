"""The display of one call and of one tensor in a notebook: small tables that any theme can show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxdebug.data.calls import Call
    from fxdebug.data.values import Value

_STATISTICS = ("mean", "std", "min", "max")
_BAD = "color:#8b0000;background:#ffd9d6;border-radius:3px;padding:0 3px"  # readable on light and on dark
_RIGHT = "text-align:right"
_ENTITIES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
)  # html is slow to load


def value_html(value: Value) -> str:
    """Return a tensor as a table of one row."""
    return _page(f"value {value.number}", _table([(value.name or "", value)]))


def call_html(call: Call) -> str:
    """Return a call with its inputs, outputs and code."""
    facts = [call.type, call.status or "", f"{call.duration * 1e3:.1f} ms", call.source or ""]
    parts = [f'<div style="opacity:.75">{_text(" · ".join(filter(None, facts)))}</div>']
    if call.error is not None:
        parts.append(f'<div><span style="{_BAD}">raised {_text(str(call.error))}</span></div>')
    rows = [*_named("in", call.inputs.named()), *_named("out", () if call.outputs is None else call.outputs.named())]
    parts.append(_table(rows))
    if call.code:
        parts.append(f"<details><summary>code</summary><pre>{_text(call.code)}</pre></details>")
    elif call.reason:
        parts.append(f"<div>{_text(call.reason)}</div>")
    return _page(call.id, "".join(parts))


def _named(kind: str, slots: Iterable[tuple[str, Value]]) -> Iterator[tuple[str, Value]]:
    return ((f"{kind} {slot}".strip(), value) for slot, value in slots)


def _page(title: str, body: str) -> str:
    font = "font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-x:auto"
    return f'<div style="{font}"><b>{_text(title)}</b>{body}</div>'


def _table(rows: Iterable[tuple[str, Value]]) -> str:
    lines = []
    for name, value in rows:
        stats = value.stats
        numbers = ["" if stats is None else _number(getattr(stats, key)) for key in _STATISTICS]
        part = "" if value.sharding is None else f" {value.sharding}"
        cells = f"<td>{_text(name)}</td><td>{_text(value.label + part)}</td>"
        cells += "".join(f'<td style="{_RIGHT}">{_text(number)}</td>' for number in numbers)
        bad = "" if stats is None else _not_finite((stats.nan, "NaN"), (stats.posinf, "+Inf"), (stats.neginf, "−Inf"))
        lines.append(f"<tr>{cells}" + (f'<td><span style="{_BAD}">{bad}</span></td>' if bad else "") + "</tr>")
    head = "<th></th><th></th>" + "".join(f'<th style="{_RIGHT}">{name}</th>' for name in _STATISTICS)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>" if lines else ""


def _not_finite(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _number(number: float | complex | None) -> str:
    if number is None:
        return ""
    return f"{abs(number):.3g}∠" if isinstance(number, complex) else f"{number:.4g}"


def _text(text: str) -> str:
    """Return text for HTML, with other control characters than line breaks as escapes."""
    shown = (c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return "".join(shown).translate(_ENTITIES)
