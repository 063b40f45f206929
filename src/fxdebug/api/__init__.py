"""The door: the only place that joins capture, store and exports. Everything else is reached from here.

Importing it loads neither torch nor numpy nor rich; the functions do when they are called.
"""

from __future__ import annotations

from typing import Any

from fxdebug.api.dropin import model_addition_debugger_context
from fxdebug.api.files import load, save, tensor
from fxdebug.api.run import arguments, fx_debug, last_failed
from fxdebug.trace import Call, Trace

__all__ = [
    "arguments",
    "find",
    "fx",
    "fx_debug",
    "html",
    "last_failed",
    "load",
    "model_addition_debugger_context",
    "save",
    "tensor",
    "text",
]


def find(trace: Trace, path: str | None = None, **conditions: Any) -> list[Call]:
    """See :func:`fxdebug.query.find`."""
    from fxdebug import query

    return query.find(trace, path, **conditions)


def fx(trace: Trace, call: Call) -> Any:
    """The runnable graph of a verified call: see :attr:`fxdebug.Call.fx`."""
    from fxdebug.errors import UsageError
    from fxdebug.ops import Explanation

    if trace.explain is None:
        raise UsageError("this run has no graphs: it was made with graph=False")
    if isinstance(trace.explain, Explanation):
        raise UsageError("this trace was loaded: running a graph needs the model; trace it again, or read call.code")
    return trace.explain.fx(call)


def text(trace: Trace, **options: Any) -> str:
    """The call tree as text: see :func:`fxdebug.exports.text.tree`."""
    from fxdebug.exports import text as as_text

    return as_text.tree(trace, **options)


def html(trace: Trace) -> str:
    """The call tree as a piece of HTML: see :func:`fxdebug.exports.html.tree`."""
    from fxdebug.exports import html as as_html

    return as_html.tree(trace)
