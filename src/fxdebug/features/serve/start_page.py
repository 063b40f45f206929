"""The pages of the server that show no run: the list of runs, a message."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from fxdebug.features.serve.runs import MOST, RunEntry, steps_kept
from fxdebug.plugins.features import folder_kinds
from fxdebug.plugins.given import Card, Folder
from fxdebug.printable import printable_lines

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_LONGEST_NAME = 200
MOST_KEPT = 8  # runs and earlier trainings that a card names
_LAY_OVER = (
    "<button>Lay over each other</button> <span class=dim>losses of two to five, and what differs in their "
    "settings</span>"
)
_STYLE = """
:root{color-scheme:light dark;--line:rgba(127,127,127,.3);--accent:#2f5fd0;--good:#21774a;--bad:#c62f3b}
@media(prefers-color-scheme:dark){:root{--accent:#8ab4ff;--good:#58bd88;--bad:#ff6b73}}
body{font:14px/1.5 system-ui,sans-serif;max-width:68em;margin:2.5em auto;padding:0 1.5em}
h1{font-size:1.25em;margin:0 0 .2em}
.dim{opacity:.65}
table{border-collapse:collapse;width:100%;margin:1.2em 0}
th{font-weight:400;text-align:left;opacity:.65}
th,td{padding:.45em .8em .45em 0;border-bottom:1px solid var(--line);white-space:nowrap}
td:nth-child(3){white-space:normal;overflow-wrap:anywhere}
a{color:var(--accent)}
tr:hover td{background:rgba(127,127,127,.08)}
button{font:inherit;padding:.35em 1.1em;border-radius:6px;border:1px solid var(--line);cursor:pointer}
.live{color:#a15c00;background:#fff1cf;border-radius:8px;padding:0 .5em}
h2{font-size:1.05em;margin:1.6em 0 .4em}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,21em),1fr));gap:.9em;margin:.8em 0}
.card{border:1px solid var(--line);border-radius:9px;padding:.7em 1em;min-width:0;display:flex;flex-direction:column}
.card h3{font-size:1em;font-weight:400;margin:0;overflow-wrap:anywhere}
.card h3 a{font-weight:600}
.card p{margin:.35em 0 0;overflow-wrap:anywhere}
.card p.dim{display:flex;flex-wrap:wrap;gap:0 .9em;font-size:.9em;margin-top:auto;padding-top:.35em}
.card p.dim span{white-space:nowrap}
.card svg{display:block;width:100%;height:40px;color:var(--accent);margin:.5em 0}
.card input{vertical-align:-1px;margin:0 .3em 0 0}
.state{font-size:.85em;border:1px solid var(--line);border-radius:8px;padding:0 .5em;white-space:nowrap}
.running{color:var(--good);border-color:currentColor}
.late,.killed,.raised,.stopped{color:var(--bad);border-color:currentColor}
.verdict{border-left:3px solid var(--line);padding-left:.6em}
.verdict.learns{border-color:var(--good)}
.verdict.fault{border-color:var(--bad)}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
"""


def start_page(folder: Path, runs: Mapping[str, RunEntry], cards: Mapping[str, Card] = MappingProxyType({})) -> str:
    """Return the start page of a folder: cards of what features read, such as trainings, and a table of runs.

    Up to five trainings can be laid over each other, any two of the runs in the table can be compared.
    """
    title = f"Runs in {escape(str(folder))}"
    if not runs:
        body = (
            "<p>There is no run here yet. <code>fxdebug run model.py:build --save RUN</code> or "
            "<code>fx_debug(model, inputs, save=RUN)</code> writes one.</p>"
        )
        return _page(title, body, refresh=2)
    parts = []
    for feature, kind in folder_kinds():
        listed = [one for one in runs.values() if one.kind == feature.name and _later(one, runs) is None]
        if listed:
            can_choose = kind.pages is not None and sum(one.kind == feature.name for one in runs.values()) > 1
            shown = "".join(_card(one, runs, cards, kind) for one in listed)
            head = f"<h2>{escape(_several(kind.what))}</h2>"
            end = _LAY_OVER * can_choose
            parts.append(f'<form action="/trainings">{head}<div class="cards">{shown}</div>{end}</form>')
    others = [one for one in runs.values() if not one.has_card]
    if others:
        rows = "".join(_row(one) for one in others)
        head = "<tr><th>a</th><th>b</th><th>run</th><th>model</th><th>changed</th><th></th></tr>"
        parts.append(
            '<h2>Runs</h2><p class="dim">Choose a run to look at, or two to compare: a is the reference.</p>'
            f'<form action="/compare"><table>{head}{rows}</table><button>Compare a with b</button></form>'
        )
    if len(runs) == MOST:
        parts.append(f"<p class=dim>The newest {MOST:,} runs are listed.</p>")
    return _page(title, "".join(parts))


def _several(what: str) -> str:
    """Return the heading of a kind of folders.

    >>> _several("a training"), _several("widths")
    ('Trainings', 'Widths')
    """
    noun = what.removeprefix("a ").removeprefix("an ").capitalize()
    return noun if noun.endswith("s") else f"{noun}s"


def _later(one: RunEntry, runs: Mapping[str, RunEntry]) -> RunEntry | None:
    """Return the training that began anew in the folder of an earlier one."""
    parent, _, last = one.name.rpartition("/")
    later = runs.get(parent or ".") if last.startswith("earlier-") else None
    return later if later is not None and later.kind == one.kind else None


def _card(one: RunEntry, runs: Mapping[str, RunEntry], cards: Mapping[str, Card], kind: Folder) -> str:
    now = cards.get(one.name)
    address, when = quote(one.name, safe=""), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.changed))
    choice = _choice(one) if kind.pages is not None else ""
    head = f'{choice}<a href="/training/{address}">{_name(one)}</a>'
    facts = [when]
    verdict = curve = ""
    if now is not None:
        head += f' <span class="state {escape(now.state.replace(" ", "-"))}">{escape(now.state)}</span>'
        facts = [*[escape(_short(fact)) for fact in now.facts], when]
        look = " fault" if now.is_fault else " learns" if now.is_good else ""
        verdict = f'<p class="verdict{look}">{escape(_short(now.verdict))}</p>'
        curve = sparkline(now.curve)
    elif one.is_written:
        head += ' <span class="state running">running</span>'
    if one.ranks > 1:
        facts.insert(0, f"{one.ranks} ranks")
    kept = [
        f'<a href="/run/{quote(run.name, safe="")}">{escape(_inside(one, run))}</a>' for _, run in steps_kept(one, runs)
    ]
    links = [
        f'<a href="/now/{address}">live</a>' if now is not None and now.follows else "",
        ", ".join(kept[:MOST_KEPT]),
    ]
    earlier = [other for other in runs.values() if _later(other, runs) is one]
    links += [
        f'{_choice(other)}<a href="/training/{quote(other.name, safe="")}">{escape(_inside(one, other))}</a>'
        for other in earlier[:MOST_KEPT]
    ]
    shown = "".join(f"<span>{fact}</span>" for fact in facts)
    return (
        f'<article class="card"><h3>{head}</h3>{verdict}{curve}<p class="dim">{shown}</p>'
        f"<p>{' · '.join(link for link in links if link)}</p></article>"
    )


def _choice(one: RunEntry) -> str:
    return f'<input type="checkbox" name="run" value="{escape(one.name)}" aria-label="lay over others: {_name(one)}"> '


def _inside(one: RunEntry, other: RunEntry) -> str:
    return other.name if one.name == "." else other.name.removeprefix(f"{one.name}/")


def _name(one: RunEntry) -> str:
    return escape(_short("this folder" if one.name == "." else one.name))


def _row(one: RunEntry) -> str:
    address, value, name = quote(one.name, safe=""), escape(one.name), _name(one)
    choices = "".join(
        f'<td><input type="radio" name="{side}" value="{value}" required aria-label="{side}: {name}"></td>'
        for side in "ab"
    )
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.changed))
    live = '<span class="live">being written</span>'
    ended = {True: live, False: "its process ended", None: "unfinished"}[one.is_written]
    state = "" if one.kind == "run" else ended
    link = f'<a href="/run/{address}">{name}</a>'
    return f"<tr>{choices}<td>{link}</td><td>{escape(_short(one.model))}</td><td>{when}</td><td>{state}</td></tr>"


def sparkline(losses: tuple[float, ...]) -> str:
    """Return a small picture of losses, nothing of fewer than two."""
    known = [loss for loss in losses if math.isfinite(loss)]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    scale = (high - low) or 1.0
    places = [f"{300 * i / (len(known) - 1):.1f},{36 - 32 * (y - low) / scale:.1f}" for i, y in enumerate(known)]
    line = (
        f'<polyline points="{" ".join(places)}" fill="none" stroke="currentColor" vector-effect="non-scaling-stroke"/>'
    )
    return f'<svg viewBox="0 0 300 40" preserveAspectRatio="none" role="img" aria-label="loss">{line}</svg>'


def escape(text: str) -> str:
    """Return text for HTML, also inside quotes."""
    return html.escape(printable_lines(text), quote=True)


def message_page(title: str, text: str) -> str:
    """Return a page with a message and the way back to the list."""
    return _page(escape(title), f'<p>{escape(text)}</p><p><a href="/">All runs</a></p>')


def _page(title: str, body: str, refresh: int = 0) -> str:
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{again}<title>{title} · fxdebug</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{body}</body></html>\n"
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
