"""show() opens a browser outside notebooks, and is a sandboxed frame inside them."""

from __future__ import annotations

import html
import re
import sys
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from support.page_data import data_in


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    monkeypatch.setattr(webbrowser, "open", seen.append)
    return seen


def test_a_run_and_a_comparison_are_opened_in_the_browser(opened: list[str]) -> None:
    trace = fx_debug(nn.ReLU(), torch.ones(2))
    pages = [trace.show(check=False), fxdebug.compare(trace, trace).show()]
    assert [Path(urlsplit(url).path) for url in opened] == [page.path for page in pages]
    assert [len(data_in(page.path)["runs"]) for page in pages] == [1, 2]


def test_a_notebook_shows_a_frame_that_cannot_reach_it(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    page = fx_debug(nn.ReLU(), torch.ones(2)).show()
    (attributes,) = re.fullmatch(r"<iframe ([^>]*)></iframe>", page._repr_html_()).groups()  # type: ignore[union-attr]
    assert opened == [] and 'sandbox="allow-scripts"' in attributes
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', attributes)[1])  # type: ignore[index]
    assert inside == page.path.read_text(encoding="utf-8")


def test_a_terminal_of_ipython_is_no_notebook(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    assert fx_debug(nn.ReLU(), torch.ones(2)).show().path.as_uri() == opened[0]
