"""The page of a run or of a comparison as text, for a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fxdebug.api.comparison import Comparison
from fxdebug.api.page.display import prepared
from fxdebug.api.trace import Trace
from fxdebug.exports.page.run import PageOptions
from fxdebug.exports.page.training import training_page
from fxdebug.exports.page.write import comparison_page, trace_page
from fxdebug.store.training_file import read_ranks


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


def page_of_training(folder: str | os.PathLike[str], live: Mapping[str, str] | None = None) -> str:
    """Return the page of a watched training, also of one that goes on: curves, report, the last watched step.

    Raises ``LoadError`` for a folder without such a training and for a damaged file.
    """
    return training_page(*read_ranks(Path(folder)), live=live)
