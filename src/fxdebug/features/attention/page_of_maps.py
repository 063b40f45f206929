"""Attention as one page that works offline: every head small, one head large, its tokens with the weights."""

from __future__ import annotations

import base64
import json
import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fxdebug.data.report import ReportData
from fxdebug.errors import UsageError
from fxdebug.exports.html import policy
from fxdebug.features.attention.maps import AttentionMap
from fxdebug.features.attention.picture import labels_for, layers_to_show, short_names
from fxdebug.features.attention.report import AttentionData
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable

STEPS = 65535  # a weight is written as a whole number of this many steps: 8e-6 at most are lost
MOST_BYTES = 32 << 20  # of weights in a page; rows of the batch beyond them are left out


def write_page(report: ReportData[Any], path: Path) -> Path:
    """Write the page. Raises ``UsageError`` for an analysis other than attention, or one without maps."""
    if not isinstance(report, AttentionData):
        raise UsageError(f"there is no page of {report.analysis}: use .csv, .json or .txt")
    if not report.maps:
        raise UsageError("there is no map to show: the notes of the report say why")
    data = json.dumps(page_data(report), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    title = escape(printable(f"attention of {report.subject}"))
    safe = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {"POLICY": policy(_SCRIPT), "TITLE": title, "STYLE": _STYLE, "SCRIPT": _SCRIPT, "DATA": safe}
    return write_text(
        path, re.sub("@([A-Z]+)@", lambda part: parts[part[1]], _PAGE)
    )  # at once: names may have any text


def page_data(report: AttentionData) -> dict[str, Any]:
    """Return what the page shows: per module the labels, and per row of the batch and head the weights, as base64.

    Each weight is two bytes, little-endian, from 0 to 65535.
    """
    layers = layers_to_show(report)
    names = short_names([one.path or report.subject for one in layers])
    rows = max(one.weights.shape[0] for one in layers)
    per_row = sum(2 * one.weights[0].size for one in layers)
    shown = max(1, min(rows, MOST_BYTES // max(per_row, 1)))
    return {
        "model": printable(report.subject),
        "rows": shown,
        "all": rows,
        "layers": [_layer(report, one, shown) | {"short": name} for one, name in zip(layers, names)],
    }


def _layer(report: AttentionData, one: AttentionMap, rows: int) -> dict[str, Any]:
    batch, heads, queries, keys = one.weights.shape
    labels = [labels_for(report, one, row) for row in range(min(rows, batch))]
    steps = np.round(one.weights[:rows].astype(np.float64) * STEPS).clip(0, STEPS).astype("<u2")
    return {
        "name": printable(one.path or report.subject),
        "heads": heads,
        "queries": [[printable(label) for label in down] for down, _ in labels],
        "keys": [[printable(label) for label in across] for _, across in labels],
        "shape": [min(rows, batch), heads, queries, keys],
        "error": one.error,
        "weights": base64.b64encode(steps.tobytes()).decode("ascii"),
    }


_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--ink:#26262c;--dim:#74747f;--line:#dcdce3;--c:47,120,173;--sel:#d98c3f}
@media(prefers-color-scheme:dark){:root{--bg:#17181c;--ink:#e6e6ea;--dim:#9a9aa5;--line:#34353c;--c:120,190,240}}
:root.light{color-scheme:light;--bg:#fff;--ink:#26262c;--dim:#74747f;--line:#dcdce3;--c:47,120,173}
:root.dark{color-scheme:dark;--bg:#17181c;--ink:#e6e6ea;--dim:#9a9aa5;--line:#34353c;--c:120,190,240}
*{box-sizing:border-box}
body{margin:0;padding:16px 20px;background:var(--bg);color:var(--ink);font:14px/1.5 system-ui,sans-serif}
h1{font-size:17px;margin:0 0 2px}
.dim{color:var(--dim)}
.bar{display:flex;gap:14px;align-items:center;flex-wrap:wrap;margin:8px 0 14px}
select,button{font:inherit;color:inherit;background:transparent;border:1px solid var(--line);border-radius:5px;
padding:2px 8px}
option{background:var(--bg);color:var(--ink)}
main{display:flex;gap:28px;align-items:flex-start}
@media(max-width:900px){main{flex-wrap:wrap}}
#grid{display:grid;gap:3px;align-items:center;max-height:82vh;overflow:auto;flex:0 1 auto;padding:2px}
#grid .name{font-size:12px;color:var(--dim);text-align:right;padding-right:6px;white-space:nowrap}
#grid canvas{display:block;border:1px solid var(--line);cursor:pointer;image-rendering:pixelated}
#grid canvas.on{outline:2px solid var(--sel);outline-offset:0}
#one{flex:1 1 420px;min-width:300px}
#map{border:1px solid var(--line);image-rendering:pixelated;display:block;cursor:crosshair}
#text{max-width:52em;margin:10px 0 16px;line-height:2}
#text span{display:inline-block;padding:2px 3px;border-radius:3px;cursor:pointer;white-space:pre-wrap}
#text span.query{outline:2px solid var(--sel)}
#told{min-height:1.5em;font-variant-numeric:tabular-nums}
"""

_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const state = {layer: 0, head: 0, row: 0, query: null};
const by = id => document.getElementById(id);
const make = (tag, text, kind) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  return node;
};
for (const layer of data.layers) {
  const bytes = Uint8Array.from(atob(layer.weights), c => c.charCodeAt(0));
  layer.values = new Uint16Array(bytes.buffer);
}
const rowOf = layer => Math.min(state.row, layer.shape[0] - 1);
const weights = (layer, head) => {
  const [, heads, queries, keys] = layer.shape, size = queries * keys, whole = rowOf(layer) * heads * size;
  if (head >= 0) return Float64Array.from(layer.values.subarray(whole + head * size, whole + (head + 1) * size),
    x => x / 65535);
  const mean = new Float64Array(size);
  for (let h = 0; h < heads; h++)
    for (let i = 0; i < size; i++) mean[i] += layer.values[whole + h * size + i] / 65535 / heads;
  return mean;
};
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--c").split(",").map(Number);
function paint(canvas, layer, head, side) {
  const [, , queries, keys] = layer.shape, all = weights(layer, head);
  const block = side ? Math.max(1, Math.ceil(Math.max(queries, keys) / side)) : 1;  // the largest of each block
  const down = Math.ceil(queries / block), across = Math.ceil(keys / block), values = new Float64Array(down * across);
  let most = 1e-9;
  all.forEach((x, i) => {
    const at = Math.floor(i / keys / block) * across + Math.floor(i % keys / block);
    if (x > values[at]) values[at] = x;
    if (x > most) most = x;
  });
  canvas.width = across; canvas.height = down;
  const picture = new ImageData(across, down), [r, g, b] = ink();
  values.forEach((x, i) => picture.data.set([r, g, b, 255 * (side ? Math.sqrt(x / most) : x / most)], 4 * i));
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return most;
}
function grid() {
  const most = Math.max(...data.layers.map(layer => layer.heads));
  const side = Math.max(15, Math.min(44, Math.floor(520 / most)));
  by("grid").style.gridTemplateColumns = `auto repeat(${most}, ${side}px)`;
  by("grid").replaceChildren();
  data.layers.forEach((layer, l) => {
    by("grid").append(make("div", layer.short, "name"));
    for (let h = 0; h < most; h++) {
      const canvas = make("canvas");
      if (h < layer.heads) {
        paint(canvas, layer, h, side);
        canvas.style.width = canvas.style.height = side + "px";
        canvas.title = `${layer.name}, head ${h}`;
        canvas.className = l === state.layer && h === state.head ? "on" : "";
        canvas.onclick = () => { state.layer = l; state.head = h; show(); };
        canvas.dataset.at = `${l},${h}`;
      } else canvas.style.visibility = "hidden";
      by("grid").append(canvas);
    }
  });
}
function show() {
  const layer = data.layers[state.layer], [, , queries, keys] = layer.shape;
  state.head = Math.min(state.head, layer.heads - 1);
  document.querySelectorAll("#grid canvas").forEach(c =>
    c.classList.toggle("on", c.dataset.at === `${state.layer},${state.head}`));
  by("layer").value = state.layer;
  by("head").replaceChildren(new Option("mean of heads", -1));
  for (let h = 0; h < layer.heads; h++) by("head").append(new Option("head " + h, h));
  by("head").value = state.head;
  const most = paint(by("map"), layer, state.head, 0);
  const side = Math.max(2, Math.min(26, Math.floor(560 / Math.max(queries, keys))));
  by("map").style.width = keys * side + "px";
  by("map").style.height = queries * side + "px";
  by("name").textContent = `${layer.name}, ${state.head < 0 ? "mean of heads" : "head " + state.head}`;
  const error = layer.error === null ? "" : `; rebuilt within ${layer.error.toExponential(1)} of the model's result`;
  by("about").textContent = `${queries} queries down, ${keys} keys across; largest ${most.toPrecision(3)}${error}`;
  if (state.query === null || state.query >= queries) state.query = queries - 1;
  text();
}
function text() {
  const layer = data.layers[state.layer], [, , queries, keys] = layer.shape, values = weights(layer, state.head);
  const across = layer.keys[rowOf(layer)], down = layer.queries[rowOf(layer)], q = state.query, [r, g, b] = ink();
  const of = values.subarray(q * keys, (q + 1) * keys), most = Math.max(...of, 1e-9);
  by("text").replaceChildren(...across.map((label, k) => {
    const span = make("span", /^·?$/.test(label) ? "␣" : label.replace(/^·/, " "));
    span.style.background = `rgba(${r},${g},${b},${0.75 * of[k] / most})`;
    span.title = of[k].toPrecision(3);
    const own = k - (keys - queries);
    if (own === q && keys >= queries) span.className = "query";
    span.onmouseenter = () => { if (own >= 0 && own < queries) { state.query = own; text(); } };
    return span;
  }));
  const best = [...of.keys()].sort((a, c) => of[c] - of[a]).slice(0, 5);
  by("told").textContent = `“${down[q]}” looks at ` +
    best.map(k => `“${across[k]}” ${(100 * of[k]).toFixed(1)} %`).join(", ");
}
by("map").onmousemove = event => {
  const [, , queries] = data.layers[state.layer].shape;
  const q = Math.floor(event.offsetY / by("map").clientHeight * queries);
  if (q >= 0 && q < queries) { state.query = q; text(); }
};
data.layers.forEach((layer, l) => by("layer").append(new Option(layer.name, l)));
for (let r = 0; r < data.rows; r++) by("row").append(new Option("row " + r, r));
by("row").hidden = data.rows < 2;
by("layer").onchange = e => { state.layer = +e.target.value; show(); };
by("head").onchange = e => { state.head = +e.target.value; show(); };
by("row").onchange = e => { state.row = +e.target.value; grid(); show(); };
by("light").onclick = () => {
  const dark = document.documentElement.classList.contains("dark") ||
    (!document.documentElement.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.className = dark ? "light" : "dark";
  grid(); show();
};
matchMedia("(prefers-color-scheme: dark)").onchange = () => { grid(); show(); };
if (data.rows < data.all) by("left").textContent = `${data.rows} of ${data.all} rows of the batch are in this page.`;
grid();
show();
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">@POLICY@<meta name="viewport" content="width=device-width">
<title>@TITLE@</title><style>@STYLE@</style></head>
<body><h1>@TITLE@</h1>
<div class="dim">Click a head; point at a row of its map, or at a token, to see where this query looks.</div>
<div class="bar"><select id="layer" aria-label="layer"></select><select id="head" aria-label="head"></select>
<select id="row" aria-label="row of the batch"></select><button id="light">light / dark</button>
<span id="left" class="dim"></span></div>
<main><div id="grid"></div><div id="one"><b id="name"></b> <span id="about" class="dim"></span>
<div id="text"></div><canvas id="map"></canvas><div id="told"></div></div></main>
<script type="application/json" id="data">@DATA@</script>
<script>@SCRIPT@</script></body></html>
"""
