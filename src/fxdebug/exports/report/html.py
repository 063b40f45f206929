"""A report as HTML, for a notebook or as a page. No scripts, no links, for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fxdebug.analyses.numbers.findings import paragraph
from fxdebug.data.report import Column, ReportData
from fxdebug.exports.html import escape, policy
from fxdebug.exports.report.text import ROWS, Line, headline, is_number, lines_of, total_text
from fxdebug.files.write_file import write_text

LARGEST = 64 * 1024  # bytes in a notebook: a report is shown again each time that the notebook is opened
MOST_LETTERS = 200  # of one cell
_MOST_FINDINGS = 20

_STYLE = """
.fxr{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;max-width:80em;overflow-x:auto}
.fxr table{border-collapse:collapse;margin:.4em 0}
.fxr th,.fxr td{text-align:left;padding:1px 1em 1px 0;border:0;white-space:nowrap;vertical-align:top;background:none}
.fxr th{opacity:.65;font-weight:400;border-bottom:1px solid rgba(127,127,127,.4)}
.fxr td.num,.fxr th.num{text-align:right}
.fxr tr:hover td{background:rgba(127,127,127,.14)}
.fxr .dim{opacity:.65}
.fxr pre{margin:.4em 0;padding:2px 6px;white-space:pre-wrap;border-left:3px solid;background:none;color:inherit}
.fxr .error{border-color:#c4302b}.fxr .warning{border-color:#d98c3f}.fxr .advice{border-color:#2f78ad}
.fxr .note{padding:2px 6px;color:#5c3a00;background:#fff1cf;border-radius:3px;width:fit-content;max-width:100%}
"""


def page_part(report: ReportData[Any]) -> str:
    """Return a report for a notebook: the totals, the first rows, findings and notes, in at most 64 KiB."""
    for rows in (2 * ROWS, ROWS, ROWS // 2, 1, 0):
        shown = _part(report, rows)
        if len(shown.encode()) <= LARGEST:
            return shown
    return f'<div class="fxr">{escape(headline(report).plain[:MOST_LETTERS])}: too large to be shown here</div>'


def write_page(report: ReportData[Any], path: Path) -> Path:
    """Write a report as a page with every row."""
    return write_text(path, report_page(report))


def report_page(report: ReportData[Any]) -> str:
    """Return a report as a page with every row."""
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{policy()}'
        f"<title>{escape(report.subject)}</title></head>"
    )
    body = _part(report, None)
    return f'{head}<body style="margin:1em;color-scheme:light dark">{body}</body></html>\n'


def _part(report: ReportData[Any], rows: int | None) -> str:
    pieces = [
        f"<style>{_STYLE}</style><div><b>{escape(_short(headline(report).plain.replace('  ', ' · ')))}</b></div>",
        _totals(report),
    ]
    if report.answer:
        pieces.insert(1, f"<div><b>{escape(_short(report.answer, 10 * MOST_LETTERS))}</b></div>")
    lines = lines_of(report, everything=rows is None)
    if report.rows != report.findings:  # those are shown below
        pieces.append(_table(report.columns, lines, rows, rows is None))
    for part in report.parts:
        by = part.settings.get("by")
        pieces.append(f"<div><b>{escape(part.analysis + (f' by {by}' if by else ''))}</b></div>")
        pieces.append(_table(part.columns, lines_of(part, everything=rows is None), rows, rows is None))
    most = len(report.findings) if rows is None else min(rows, _MOST_FINDINGS)
    for finding in report.findings[:most]:
        text = "\n".join(paragraph(finding, 100))
        pieces.append(f'<pre class="{escape(finding.severity)}">{escape(_short(text, 10 * MOST_LETTERS))}</pre>')
    pieces.append(_more(len(report.findings) - most, "findings"))
    most = len(report.notes) if rows is None else max(rows, 1)
    for note in report.notes[:most]:
        text = f"{note.where}: {note.what}" if note.where else note.what
        pieces.append(f'<div class="note">{escape(_short(text, 5 * MOST_LETTERS))}</div>')
    pieces.append(_more(len(report.notes) - most, "notes"))
    return f'<div class="fxr">{"".join(pieces)}</div>'


def _totals(report: ReportData[Any]) -> str:
    rows = [
        f'<tr><td class="dim">{escape(_short(heading))}</td><td>{escape(_short(total_text(report, heading)))}</td></tr>'
        for heading in report.totals
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _table(columns: Sequence[Column], lines: Sequence[Line], most: int | None, everything: bool) -> str:
    """Return the first ``most`` lines as a table, without columns that have nothing in any of them."""
    chosen = [c for c in columns if (c.shown or everything) and any(line[c.field] not in (None, "") for line in lines)]
    if not lines or not chosen or most == 0:
        return _more(len(lines), "lines")
    sides = [' class="num"' if is_number(column, [line[column.field] for line in lines]) else "" for column in chosen]
    head = "".join(
        f'<th{side} title="{escape(column.about)}">{escape(column.heading)}</th>' for column, side in zip(chosen, sides)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{side}>{escape(_short(line.text(c)))}</td>" for c, side in zip(chosen, sides)) + "</tr>"
        for line in lines[:most]
    )
    return f"<table><tr>{head}</tr>{body}</table>" + _more(0 if most is None else len(lines) - most, "lines")


def _more(count: int, what: str) -> str:
    return f'<div class="dim">and {count} more {what}</div>' if count > 0 else ""


def _short(text: str, most: int = MOST_LETTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
