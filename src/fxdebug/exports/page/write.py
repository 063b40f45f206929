"""Write a page: one file with its code, its style and its data, which needs no network and allows none."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fxdebug.comparison.result import ComparisonData
from fxdebug.data.trace import TraceData
from fxdebug.exports.comparison import text as comparison_text
from fxdebug.exports.comparison.marks import CallKeys
from fxdebug.exports.html import escape, policy
from fxdebug.exports.notebook import tree
from fxdebug.exports.page.comparison import comparison_data
from fxdebug.exports.page.pack import Texts, compressed, packed
from fxdebug.exports.page.run import DEFAULTS, PageOptions, run_data
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable
from fxdebug.version import __version__

LONGEST_TITLE = 200  # characters
_STATIC = 1 << 18  # bytes of the tree for readers without scripts; a larger one is left out


def write_trace(trace: TraceData, path: Path, options: PageOptions = DEFAULTS) -> Path:
    """Write the page of a run."""
    return write_text(path, trace_page(trace, options))


def write_comparison(comparison: ComparisonData, path: Path, *, check: bool | None = None) -> Path:
    """Write the page of two runs side by side. ``check``: with the findings about the numbers of each, as for a run."""
    return write_text(path, comparison_page(comparison, check=check))


def trace_page(trace: TraceData, options: PageOptions = DEFAULTS, live: Mapping[str, Any] | None = None) -> str:
    """Return the page of a run; ``live`` is for a server: the revision it shows, and where to ask for the newest."""
    data = trace_data(trace, options) | {"live": live}
    return around(trace.model, compressed(packed(data)), static_tree(trace), live=live is not None)


def comparison_page(comparison: ComparisonData, *, check: bool | None = None) -> str:
    """Return the page of two runs side by side."""
    data = pair_data(comparison, PageOptions(check=check))
    return around(data["title"], compressed(packed(data)), comparison_text.html(comparison))


def trace_data(trace: TraceData, options: PageOptions = DEFAULTS) -> dict[str, Any]:
    """Return the data of the page of a run."""
    texts = Texts()
    return page_data(trace.model, texts, [run_data(trace, texts, options)])


def pair_data(comparison: ComparisonData, options: PageOptions = DEFAULTS) -> dict[str, Any]:
    """Return the data of the page of two runs."""
    texts = Texts()
    runs = [
        run_data(comparison.a, texts, options, CallKeys(comparison, "a").of),
        run_data(comparison.b, texts, options, CallKeys(comparison, "b").of),
    ]
    title = f"{comparison.a.model} and {comparison.b.model}"
    return page_data(title, texts, runs, comparison_data(comparison, texts))


def page_data(
    title: str, texts: Texts, runs: list[dict[str, Any]], comparison: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return ``PageData`` of payload.ts."""
    return {
        "version": __version__,
        "title": printable(title[:LONGEST_TITLE]),
        "made": runs[-1]["started"],
        "texts": texts.listed,
        "runs": runs,
        "comparison": comparison,
        "live": None,
    }


def static_tree(trace: TraceData) -> str:
    """Return the call tree without scripts, up to the size that is useful."""
    text = tree(trace)
    return text if len(text) <= _STATIC else "<p>This page needs JavaScript: the run is too large for a plain list.</p>"


def around(title: str, payload: str, static: str, *, live: bool = False) -> str:
    """Return a page around data that is packed already; ``static`` is shown where no script runs.

    The policy allows two inline scripts, by their digests, and what they add: the page's code, which is compressed.
    """
    name = escape(title[:LONGEST_TITLE])
    more = " 'strict-dynamic'; img-src data: blob:; worker-src blob:" + ("; connect-src 'self'" if live else "")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{policy(_THEME, _LOADER, more=more)}"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="generator" content="fxdebug">'
        f"<title>{name} · fxdebug</title><script>{_THEME}</script></head>\n<body>"
        f'<div id="app"></div><noscript>{static}</noscript>\n'
        f'<script type="application/octet-stream" id="payload">{payload}</script>\n'
        f'<script type="application/octet-stream" id="code">{code()}</script>\n'
        f"<script>{_LOADER}</script></body></html>\n"
    )


# before anything is painted: the theme that the reader chose last, where storage is allowed (web/src/shell/theme.ts)
_THEME = (
    'try{const theme=localStorage.getItem("fxdebug theme");'
    'if(theme==="light"||theme==="dark")document.documentElement.style.colorScheme=theme}catch{}'
)

# inflates the code and runs it; the code adds its style first
_LOADER = (
    '(async()=>{const packed=Uint8Array.from(atob(document.getElementById("code").textContent),c=>c.charCodeAt(0)),'
    'code=new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")),'
    'script=document.createElement("script");'
    'script.src=URL.createObjectURL(new Blob([await new Response(code).arrayBuffer()],{type:"text/javascript"}));'
    "script.onload=()=>URL.revokeObjectURL(script.src);document.head.append(script)})()"
)


@functools.cache
def code() -> str:
    """Return the script of every page, with its style, as base64 of its zlib form."""
    style = json.dumps(built("page.css"))
    style = f'document.head.append(Object.assign(document.createElement("style"),{{textContent:{style}}}));\n'
    return compressed((style + built("page.js")).encode("utf-8"))


def built(name: str) -> str:
    """Return the text of a file that ``make page`` built."""
    return resources.files("fxdebug.exports.page").joinpath("built", name).read_text(encoding="utf-8")
