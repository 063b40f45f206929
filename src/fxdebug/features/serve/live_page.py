"""The present page of a training, and the events that update it: states, steps, incidents, the verdict."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fxdebug import api
from fxdebug.errors import FxDebugError
from fxdebug.features.serve.start_page import MOST_KEPT, escape

PERIOD = 0.5  # seconds between two looks at the file
VERDICT_EVERY, SHARE = 2.0, 10.0  # seconds between two verdicts, and at least so many times what one takes
ALIVE_EVERY = 15.0  # seconds: a browser that is gone is noticed when it is written to
LONGEST = 3600.0  # seconds of one stream; the browser asks again, from where it was
MOST_POINTS = 1000
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def live_page(name: str, state: Any, nonce: str, kept: Sequence[str] = ()) -> str:
    """Return the page of a training: its state and verdict on top, curves of the loss, its learning rate and updates.

    ``kept`` are the names of runs of its steps, below the folder that is served.
    """
    title = escape(name if name != "." else "this folder")
    address = quote(name, safe="")
    script = _SCRIPT.replace("%ADDRESS%", json.dumps(f"/live/{address}")).replace("%MOST%", str(MOST_POINTS))
    runs = "Runs that were kept: " * bool(kept) + ", ".join(
        f'<a href="/run/{quote(one, safe="")}">{escape(one.removeprefix(f"{name}/"))}</a>' for one in kept[:MOST_KEPT]
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title} · fxdebug</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body>'
        f'<p><a href="/">All runs</a> · <a href="/training/{address}">curves, report and calls</a></p>'
        f'<h1>{title} <span class="dim">{escape(state.model)}</span> {_state(state.state)}</h1>'
        f'<p id="verdict" class="{_kind(state)}">{escape(state.sentence)}</p>'
        f'<p id="now" class="dim">{state.steps} steps</p>'
        f"{_curve('loss', 300, 'loss over steps, with that of a constant answer')}"
        f"{_curve('rate', 120, 'learning rate over steps')}"
        f"{_curve('update', 120, 'update over weight by step, with what is usual')}"
        f'<ul id="incidents"></ul><p>{runs}</p><script nonce="{nonce}">{script}</script></body></html>\n'
    )


def _state(state: str) -> str:
    return f'<b id="state" class="{escape(state.replace(" ", "-"))}">{escape(state)}</b>'


def _curve(name: str, height: int, about: str) -> str:
    """Return the place of a curve, and of the numbers between which it lies."""
    return (
        f'<figure hidden><svg id="{name}" viewBox="0 0 1000 {height}" preserveAspectRatio="none" height="{height}" '
        f'role="img" aria-label="{about}"></svg><figcaption id="{name}-range" class="dim"></figcaption></figure>'
    )


def _kind(state: Any) -> str:
    return "fault" if state.is_fault else "learns" if state.learns else ""


def events(folder: Path, offset: int, clock: Callable[[], float], sleep: Callable[[float], None]) -> Iterator[bytes]:
    """Yield server-sent events of a training from a byte of its file on; the id of an event is where to go on."""
    began = spoken = clock()
    due, known, before = began, "", ""
    while clock() - began < LONGEST:
        try:
            steps, incidents, offset = api.steps_since(folder, offset)
            if steps or incidents:
                spoken = clock()
                yield _event("steps", {"steps": [_point(step) for step in steps], "incidents": incidents}, offset)
            if (since := clock()) >= due:  # a process that is killed writes nothing more
                state = api.training_state(folder)
                told, parts = (json.dumps(one, allow_nan=False) for one in (_told(state), _before(state.restart)))
                due = clock() + max(VERDICT_EVERY, SHARE * (clock() - since))
                if parts != before and parts != "null":
                    before = parts
                    yield f"event: before\ndata: {parts}\n\n".encode()
                if told != known:
                    known, spoken = told, clock()
                    yield f"event: state\ndata: {told}\n\n".encode()
        except FxDebugError as error:
            yield _event("gone", {"why": str(error)}, offset)
            return
        if clock() - spoken > ALIVE_EVERY:
            spoken = clock()
            yield b": alive\n\n"
        sleep(PERIOD)


def _point(step: list[Any]) -> list[Any]:
    """Return the number of a step, its loss, learning rate and update over weight, as far as they are known."""
    numbers = step[1], max(step[4], default=None), step[5] if len(step) > 5 else None
    return [step[0], *[one if isinstance(one, (int, float)) and math.isfinite(one) else None for one in numbers]]


def _told(state: Any) -> dict[str, Any]:
    constant = state.constant if state.constant is not None and math.isfinite(state.constant) else None
    return {
        "state": state.state, "sentence": state.sentence, "kind": _kind(state), "steps": state.steps,
        "constant": constant,
    }  # fmt: skip


def _before(restart: Any) -> dict[str, Any] | None:
    """Return the curves of the trainings that one goes on with, and where it does."""
    if restart is None:
        return None
    parts = [[[step, loss] for step, loss in part.points if math.isfinite(loss)] for part in restart.parts]
    return {"step": restart.step, "text": restart.text, "parts": parts}


def _event(kind: str, content: dict[str, Any], offset: int) -> bytes:
    return f"id: {offset}\nevent: {kind}\ndata: {json.dumps(content, allow_nan=False)}\n\n".encode()


def now() -> float:
    """Return a clock that only goes forward, in seconds."""
    return time.monotonic()


_STYLE = """
:root{color-scheme:light dark;--line:rgba(127,127,127,.4)}
:root{--accent:#2f5fd0;--constant:#a15c00;--good:#21774a;--bad:#c62f3b}
@media(prefers-color-scheme:dark){:root{--accent:#8ab4ff;--constant:#e2ac4b;--good:#58bd88;--bad:#ff6b73}}
a{color:var(--accent)}
body{font:14px/1.5 system-ui,sans-serif;max-width:68em;margin:2em auto;padding:0 1.5em}
h1{font-size:1.25em;margin:0}
.dim{opacity:.65}
#state{font-size:.8em;border:1px solid var(--line);border-radius:8px;padding:0 .5em}
#state.running{color:var(--good);border-color:currentColor}
#state:is(.late,.killed,.raised,.stopped){color:var(--bad);border-color:currentColor}
#verdict{font-size:1.1em;border-left:4px solid var(--line);padding-left:.8em}
#verdict.learns{border-color:var(--good)}
#verdict.fault{border-color:var(--bad)}
svg{width:100%;color:var(--accent);border-bottom:1px solid var(--line)}
svg path{stroke-width:1.5}
svg .before{opacity:.4}
svg .restart{opacity:.6;stroke-dasharray:2 3}
svg .constant{stroke:var(--constant);stroke-dasharray:6 4}
svg .usual{fill:var(--good);opacity:.12}
figure{margin:1.2em 0}
"""
_SCRIPT = """
const points = [], most = %MOST%; let constant = null, before = null;
const show = (id, text) => { document.getElementById(id).textContent = text; };
const number = value => value === null || value === undefined ? "n/a" : Number(value.toPrecision(4)).toString();
function line(path, name) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", "path");
  one.setAttribute("d", path); one.setAttribute("fill", "none"); one.setAttribute("stroke", "currentColor");
  one.setAttribute("class", name); one.setAttribute("vector-effect", "non-scaling-stroke"); return one;
}
function box(top, bottom, name) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ x: 0, width: 1000, y: top, height: bottom - top, class: name }))
    one.setAttribute(key, value);
  return one;
}
function curve(id, at, name, about, { level = null, band = null, isLog = false, parts: others = [] } = {}) {
  const each = Math.max(1, Math.ceil(points.length / most)), svg = document.getElementById(id);
  const is = value => value !== null && value !== undefined && (!isLog || value > 0);
  const some = points.filter((point, i) => i % each === 0 && is(point[at]));
  if (some.length < 2) return;
  const size = isLog ? Math.log10 : value => value, height = svg.viewBox.baseVal.height - 20;
  const numbers = [some, ...others].flatMap(part => part.map(point => point[at]));
  if (level !== null) numbers.push(level);
  if (band) numbers.push(...band);
  const low = size(Math.min(...numbers)), high = size(Math.max(...numbers));
  const begin = before ? before.step : 0, all = before ? before.parts.flat() : [];
  const first = all.reduce((least, point) => Math.min(least, point[0]), points[0][0] + begin);
  const last = all.reduce((most, point) => Math.max(most, point[0]), points[points.length - 1][0] + begin);
  const x = step => 1000 * (step - first) / ((last - first) || 1);
  const y = value => height + 10 - (high > low ? height * (size(value) - low) / (high - low) : height / 2);
  const parts = band ? [box(y(band[1]), y(band[0]), "usual")] : [];
  const through = (part, from) =>
    "M" + part.map(point => x(point[0] + from).toFixed(1) + " " + y(point[at]).toFixed(1)).join("L");
  for (const part of others) if (part.length) parts.push(line(through(part, 0), "before"));
  parts.push(line(through(some, begin), ""));
  if (before) parts.push(line("M" + x(begin).toFixed(1) + " 0V" + (height + 20), "restart"));
  if (level !== null) parts.push(line("M0 " + y(level) + "H1000", "constant"));
  svg.replaceChildren(...parts);
  svg.closest("figure").hidden = false;
  const own = some.map(point => point[at]), least = Math.min(...own), largest = Math.max(...own);
  const range = least === largest ? number(least) : number(least) + " to " + number(largest);
  show(id + "-range", name + " " + range + ", steps " + first + " to " + last + about);
}
function draw() {
  const dashed = constant === null ? "" : "; dashed: a constant answer has " + number(constant);
  const restarted = before ? "; paler, " + before.text : "";
  curve("loss", 1, "loss", dashed + restarted, { level: constant, parts: before ? before.parts : [] });
  curve("rate", 2, "learning rate", "");
  const usual = "; median of the matrices, the band is usual: 0.0001 to 0.01";
  curve("update", 3, "update/weight", usual, { band: [1e-4, 1e-2], isLog: true });
}
const source = new EventSource(%ADDRESS%);
source.addEventListener("steps", event => {
  const told = JSON.parse(event.data);
  for (const point of told.steps) {
    if (points.length && point[0] <= points[points.length - 1][0]) points.length = 0;
    points.push(point);
  }
  for (const text of told.incidents) {
    const item = document.createElement("li"); item.textContent = text;
    document.getElementById("incidents").append(item);
  }
  const last = points[points.length - 1];
  const loss = last && last[1] === null ? "not finite, or not known" : number(last && last[1]);
  if (last) show("now", (last[0] + 1) + " steps, loss " + loss + ", learning rate " + number(last[2]));
  draw();
});
source.addEventListener("state", event => {
  const told = JSON.parse(event.data);
  constant = told.constant; show("state", told.state);
  document.getElementById("state").className = told.state.replace(" ", "-"); show("verdict", told.sentence);
  document.getElementById("verdict").className = told.kind; draw();
});
source.addEventListener("before", event => { before = JSON.parse(event.data); draw(); });
source.addEventListener("gone", event => { show("state", JSON.parse(event.data).why); source.close(); });
"""
