"""The door: the only place that joins capture, store and exports. Everything else is reached from here.

Importing it loads neither torch nor numpy nor rich; the functions do when they are called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fxdebug.analyses.findings import Findings
from fxdebug.api.comparing import compare, compare_models, comparison_html, comparison_text, export_comparison
from fxdebug.api.dropin import model_addition_debugger_context
from fxdebug.api.files import load, save, save_golden, tensor
from fxdebug.api.run import VALUES, arguments, fx_debug, last_failed
from fxdebug.api.shadow import shadow
from fxdebug.ops import Explanation
from fxdebug.trace import Call, Explains, Trace

__all__ = [
    "VALUES",
    "arguments",
    "ask",
    "check",
    "compare",
    "compare_models",
    "comparison_html",
    "comparison_text",
    "export",
    "export_comparison",
    "find",
    "fx",
    "fx_debug",
    "graph_at",
    "html",
    "last_failed",
    "listing",
    "load",
    "model_addition_debugger_context",
    "save",
    "save_golden",
    "shadow",
    "tensor",
    "text",
]


def find(trace: Trace, path: str | None = None, **conditions: Any) -> list[Call]:
    """See :func:`fxdebug.query.find`."""
    from fxdebug import query

    return query.find(trace, path, **conditions)


def ask(question: str, trace: Trace, *args: Any, **options: Any) -> Any:
    """A function of :mod:`fxdebug.query` on a trace."""
    from fxdebug import query

    return getattr(query, question)(trace, *args, **options)


def graph_at(trace: Trace, depth: int | None = None, *, ops: bool = True) -> Any:
    """See :func:`fxdebug.graph.collapsed`."""
    from fxdebug import graph, query

    return graph.collapsed(query.network(trace), depth, ops=ops)


def check(trace: Trace | str | os.PathLike[str], *, tensors: bool = True) -> Findings:
    """What is wrong with the numbers of a run, or of one saved in a folder, worst first; a tuple of findings.

    Who made the first NaN or infinity, what is about to overflow, what was lost in underflow or cancellation: see
    :func:`fxdebug.analyses.numerics.check`. ``tensors=False`` does not read the data that the run kept.
    Raises ``LoadError`` for a path that is no run.

    >>> import torch, fxdebug
    >>> print(fxdebug.check(fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))))
    Nothing wrong with the numbers (1 operations in 1 calls).
    """
    from fxdebug.analyses import numerics

    return numerics.check(trace if isinstance(trace, Trace) else load(trace), tensors=tensors)


def export(trace: Trace, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write a trace for other programs and for eyes, by suffix; return the path.

    ``.dot .gv .svg .png .pdf``: the drawn graph (``depth``, ``color``, ``fold``, ``everything`` …); ``.graphml`` and
    ``.json``: the networkx graph; ``.html``: the tree as a page; ``.txt``: as text.
    Raises ``UsageError`` for another suffix, ``MissingExtra`` where a picture cannot be drawn here.
    """
    from fxdebug.exports import registry

    return registry.export(trace, Path(path), **options)


def fx(explain: Explains | Explanation | None, call: Call) -> Any:
    """The runnable graph of a verified call: see :attr:`fxdebug.Call.fx`."""
    from fxdebug.errors import UsageError

    if explain is None:
        raise UsageError("this run has no graphs: it was made with graph=False")
    if isinstance(explain, Explanation):
        raise UsageError("this trace was loaded: running a graph needs the model; trace it again, or read call.code")
    return explain.fx(call)


def text(trace: Trace, **options: Any) -> str:
    """The call tree as text: see :func:`fxdebug.exports.text.tree`."""
    from fxdebug.exports import text as as_text

    return as_text.tree(trace, **options)


def listing(rows: list[Any], width: int | None = None) -> str:
    """Rows of (id, kind, status, values, source) as text: see :func:`fxdebug.exports.text.listing`."""
    from fxdebug.exports import text as as_text

    return as_text.listing(rows, width)


def html(trace: Trace) -> str:
    """The call tree as a piece of HTML: see :func:`fxdebug.exports.html.tree`."""
    from fxdebug.exports import html as as_html

    return as_html.tree(trace)
