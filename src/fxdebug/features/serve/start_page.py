"""The pages of the server that show no run: the list of runs, a message."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from fxdebug.features.serve.runs import MOST, RunEntry
from fxdebug.printable import printable_lines

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_LONGEST_NAME = 200
_PATHS = {"run": "run", "unfinished": "run", "training": "training"}
_STYLE = """
:root{color-scheme:light dark;--line:rgba(127,127,127,.3);--accent:#2f5fd0}
@media(prefers-color-scheme:dark){:root{--accent:#8ab4ff}}
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
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
"""


def start_page(folder: Path, runs: Mapping[str, RunEntry], states: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the list of the runs of a folder, with a form that compares two of them; ``states`` are of trainings."""
    title = f"Runs in {escape(str(folder))}"
    if not runs:
        body = (
            "<p>There is no run here yet. <code>fxdebug run model.py:build --save RUN</code> or "
            "<code>fx_debug(model, inputs, save=RUN)</code> writes one.</p>"
        )
        return _page(title, body, refresh=2)
    rows = "".join(_row(one, states.get(one.name)) for one in runs.values())
    more = f"<p class=dim>The newest {MOST:,} runs are listed.</p>" if len(runs) == MOST else ""
    head = "<tr><th>a</th><th>b</th><th>run</th><th>model</th><th>changed</th><th></th></tr>"
    form = f'<form action="/compare"><table>{head}{rows}</table><button>Compare a with b</button></form>'
    return _page(
        title, f'<p class="dim">Choose a run to look at, or two to compare: a is the reference.</p>{form}{more}'
    )


def _row(one: RunEntry, now: Any = None) -> str:
    model = escape(_short(one.model or ("" if now is None else now.model)))
    name = escape(_short("this folder" if one.name == "." else one.name))
    address, value = quote(one.name, safe=""), escape(one.name)
    choices = (
        "<td></td><td></td>"
        if one.kind == "training"
        else "".join(
            f'<td><input type="radio" name="{side}" value="{value}" required aria-label="{side}: {name}"></td>'
            for side in "ab"
        )
    )
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.changed))
    live = '<span class="live">being written</span>'
    ended = {True: live, False: "its process ended", None: "unfinished"}[one.is_written]
    training = f"training of {one.ranks} ranks" if one.ranks > 1 else "training"
    training += f", {live}" if one.is_written else ""
    if now is not None:
        training += (
            f": {escape(now.state)}, {now.steps} steps {sparkline(now.losses)}<br>{escape(_short(now.sentence))}"
        )
    state = {"run": "", "unfinished": ended, "training": training}[one.kind]
    link = f'<a href="/{_PATHS[one.kind]}/{address}">{name}</a>'
    link += f' · <a href="/now/{address}">now</a>' if now is not None else ""
    return f"<tr>{choices}<td>{link}</td><td>{model}</td><td>{when}</td><td>{state}</td></tr>"


def sparkline(losses: tuple[float, ...]) -> str:
    """Return a small picture of losses, nothing of fewer than two."""
    known = [loss for loss in losses if math.isfinite(loss)]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    scale = (high - low) or 1.0
    places = [f"{80 * i / (len(known) - 1):.1f},{18 - 16 * (y - low) / scale:.1f}" for i, y in enumerate(known)]
    line = f'<polyline points="{" ".join(places)}" fill="none" stroke="currentColor"/>'
    return f'<svg width="80" height="20" role="img" aria-label="loss">{line}</svg>'


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
