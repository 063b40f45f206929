"""The page of a run or of a comparison as text, for a server."""

from __future__ import annotations

from collections.abc import Mapping

from fxdebug.api.comparison import Comparison
from fxdebug.api.page.display import prepared
from fxdebug.api.trace import Trace
from fxdebug.exports.page.run import PageOptions
from fxdebug.exports.page.write import comparison_page, trace_page


def page_of(run: Trace | Comparison, live: Mapping[str, str] | None = None) -> str:
    """Return the page of a run or of a comparison; ``live``: the revision that it shows, and where to ask for another.

    >>> import torch, fxdebug
    >>> page_of(fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2)))[:15]
    '<!doctype html>'
    """
    if isinstance(run, Comparison):
        return comparison_page(run)
    trace, options = prepared(run, {})
    return trace_page(trace, PageOptions(**options), live)
