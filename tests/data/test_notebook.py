"""What a notebook shows of a call, a tensor, code and findings: whole HTML that says what the text says."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from support.trees import Does, ones


class Page(HTMLParser):
    """Reads HTML strictly, and keeps the cells of its tables and all of its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(0)
    return fx_debug(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), ones())


def test_a_call_shows_its_tensors_with_numbers_and_its_code(trace: Trace) -> None:
    call = trace["0"]
    page = Page(call._repr_html_())
    assert page.cells[:6] == ["", "", "mean", "std", "min", "max"]
    assert page.cells[6:8] == ["in args[0]", "float32[1, 4]"] and page.cells[12:14] == ["out", "float32[1, 4]"]
    assert page.cells[14] == f"{call.outputs[0].stats.mean:.4g}"
    assert call.code in page.text and "Linear · verified" in page.text
    assert not re.search(r"https?:|url\(|@import|<script", call._repr_html_())


def test_a_tensor_shows_what_is_not_finite_on_a_ground_of_its_own() -> None:
    trace = fx_debug(Does(lambda self, x: x / 0), torch.tensor([0.0, 1.0, -1.0]))
    html = trace.root.outputs[0]._repr_html_()
    assert Page(html).cells[-1] == "1 NaN, 1 +Inf, 1 −Inf"
    assert re.search(r"color:#8b0000;background:#ffd9d6", html)  # readable on a light and on a dark page
    assert "color:#8b0000;background:#ffd9d6" in trace._repr_html_()


@pytest.mark.parametrize("name", ["<b>", "a\x1b[31m", "\u202e", "\ud800", '"&"'])
def test_names_are_text_and_nothing_else(name: str) -> None:
    def fail(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(name)

    with pytest.raises(ValueError):
        fx_debug(Does(lambda self, x: getattr(self, name)(x), **{name: Does(fail)}), ones())
    failed = fxdebug.last_failed()
    assert failed is not None
    for call in failed.calls:
        text = call._repr_html_()
        assert text.replace("\n", "").isprintable() and Page(text).text.count("ValueError") == 1


def test_complex_empty_and_unmeasured_tensors_are_shown() -> None:
    for made in (
        torch.zeros(0),
        torch.ones(2, dtype=torch.complex64) * 3j,
        torch.ones(2, device="meta"),
        torch.tensor(7),
    ):
        value = fx_debug(Does(lambda self, x: x * 1), made).root.outputs[0]
        assert value.label in Page(value._repr_html_()).text
    assert "3∠" in fx_debug(Does(lambda self, x: x * 1), torch.ones(2) * 3j).root.outputs[0]._repr_html_()


def test_code_and_findings_show_themselves_in_lines_at_a_prompt(trace: Trace) -> None:
    assert repr(trace["0"].code) == str(trace["0"].code) == trace["0"].code and "\n" in repr(trace["0"].code)
    assert repr(trace.check()) == str(trace.check()) == "Nothing wrong with the numbers (2 operations in 3 calls)."
    damaged = fx_debug(nn.Sequential(nn.ReLU()), torch.full((2,), math.nan))
    found = damaged.check()
    assert repr(found).startswith("error: ")
    assert all("the input 'input' has 2 NaN of 2." in text for text in (repr(found), Page(found._repr_html_()).text))
    assert found == tuple(found)
