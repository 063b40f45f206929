"""Write the page of a run or of a comparison, and show it in the browser or in a notebook."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.data.trace import AnyTrace, TraceData
from fxdebug.exports import registry
from fxdebug.plugins.feature import Kind
from fxdebug.query import attach_measures

HEIGHT = 720  # pixels of a page in a notebook


@dataclass(frozen=True)
class Page:
    """A page that was written to a file; a notebook shows it in a frame."""

    path: Path
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        """Return the page in a frame that may run its script and nothing else: it cannot reach the notebook."""
        text = escape(self.path.read_text(encoding="utf-8"), quote=True)
        style = f"width:100%;height:{self.height}px;border:1px solid rgba(127,127,127,.4);border-radius:6px"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{text}"></iframe>'

    def __repr__(self) -> str:
        return f"<page {self.path}>"


def show(kind: Kind, run: object, options: Mapping[str, Any]) -> Page:
    """Write the page of a run or of a comparison to a temporary file, and open it in the browser.

    In a notebook no browser is opened: the cell shows the page.
    """
    path = Path(tempfile.mkdtemp(prefix="fxdebug-page-")) / "page.html"
    if isinstance(run, TraceData):
        run, options = prepared(run, options)
    page = Page(registry.export(kind, run, path, **options))
    if not in_notebook():
        webbrowser.open(page.path.as_uri())
    return page


def in_notebook() -> bool:
    """Does this program run in a notebook, which shows what a cell returns?"""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def prepared(trace: AnyTrace, options: Mapping[str, Any]) -> tuple[AnyTrace, dict[str, Any]]:
    """Return a run with the measures of the reports in the options, and options with what the run kept of its tensors.

    Of tensors the page has histograms, and attention maps unless a report has them.
    """
    reports: Sequence[ReportData[Any]] = tuple(options.get("reports", ()))
    measured = [report for report in reports if report.measures]
    if measured:
        trace = attach_measures.with_measures(trace, measured)
    if trace.data is None or not any(value.saved for value in trace.values):
        return trace, dict(options)
    try:
        from fxdebug.api.page import tensors
    except ImportError as error:  # a run can be looked at where there is no torch
        return trace, {**options, "remarks": (f"no histograms and attention maps, which need torch: {error}",)}
    return trace, {**options, **tensors.kept_in(trace, reports)}
