"""What a Trace shows of itself in a notebook: HTML that stands alone and says what the text says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from support.contrast import unreadable

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Reads HTML strictly: every tag is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.classes: dict[str, list[str]] = {}
        self._class: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
            self._class.append(dict(attrs).get("class") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._class.pop()

    def handle_data(self, data: str) -> None:
        for name in self._class[-1].split() if self._class else ():
            self.classes.setdefault(name, []).append(data)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(6)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)).log()


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(0)
    return fx_debug(Model(), torch.ones(1, 4))


def test_it_is_whole_html_without_scripts_and_without_the_network(trace: Trace) -> None:
    text = trace._repr_html_()
    page = Page(text)
    assert set(page.tags) == {"div", "style", "details", "summary", "span"}
    assert {name for name, _ in page.attributes} <= {"class", "title", "open"}
    assert not re.search(r"https?:|url\(|@import", text)


def test_it_shows_the_calls_shapes_and_numbers_that_the_text_shows(trace: Trace) -> None:
    page = Page(trace._repr_html_())
    lines = str(trace).splitlines()
    assert page.classes["head"] == [lines[0]]
    shown = [text for text in page.classes["name"] if text != "call"]
    assert [name.strip() for name in shown] == ["Model", "layers", "0 … 5 ×6", "0", "1", "head"]
    written = set(" ".join(lines).replace("f32", "float32").split())
    assert {"dtype", "mean", "std", "min", "max"} < set(page.classes["num"]) - {""} <= written
    assert page.classes["shape"] == ["out", "1×2", *["1×4"] * 4, "1×2"]


def test_what_is_not_finite_is_marked(trace: Trace) -> None:
    assert any("nan" in text.lower() for text in Page(trace._repr_html_()).classes["bad"])
    fine = fx_debug(nn.Linear(2, 2), torch.ones(1, 2))
    assert "bad" not in Page(fine._repr_html_()).classes


def test_a_model_that_raised_shows_where() -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no <way>")

    with pytest.raises(ValueError, match="no <way>"):
        fx_debug(nn.Sequential(nn.ReLU(), Raises()), torch.ones(1))
    failed = fxdebug.last_failed()
    assert failed is not None
    assert "raised ValueError: no <way>" in Page(failed._repr_html_()).classes["bad"]


def test_names_are_shown_as_they_are_and_never_as_markup() -> None:
    name = "<script>alert('a')</script>&amp;\"q"
    model = nn.Sequential()
    model.add_module(name, nn.Sequential(nn.ReLU()))
    page = Page(fx_debug(model, torch.ones(1))._repr_html_())
    assert "script" not in page.tags
    assert name in [text.strip() for text in page.classes["name"]]


def test_a_loaded_run_shows_the_same(trace: Trace, tmp_path: Path) -> None:
    assert fxdebug.load(trace.save(tmp_path))._repr_html_() == trace._repr_html_()


def test_a_model_that_is_nested_very_deep_is_shown_too() -> None:
    model: nn.Module = nn.ReLU()
    for _ in range(150):
        model = nn.Sequential(model)
    page = Page(fx_debug(model, torch.ones(1), graph=False)._repr_html_())
    assert page.tags.count("details") == 150


def test_the_two_highest_levels_are_open_at_first() -> None:
    model: nn.Module = nn.ReLU()
    for _ in range(4):
        model = nn.Sequential(model)
    text = fx_debug(model, torch.ones(1))._repr_html_()
    assert re.findall(r"<details( open)?>", text) == [" open", " open", "", ""]


def test_a_large_run_is_shown_in_64_kib_without_its_lowest_levels() -> None:
    blocks = [nn.Sequential(nn.Linear(4, 4 + i)) for i in range(300)]

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleDict({f"{'x' * 30}{i}": block for i, block in enumerate(blocks)})

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [block(x) for block in self.blocks.values()]

    text = fx_debug(Wide(), torch.ones(1, 4), graph=False)._repr_html_()
    page = Page(text)
    assert len(text.encode()) <= 64 * 1024
    assert "calls deeper than 0 levels are left out: trace.show() has all of them" in page.classes["note"]


def test_a_name_of_ten_thousand_letters_is_cut() -> None:
    model = nn.Sequential()
    model.add_module("n" * 10_000, nn.ReLU())
    text = fx_debug(model, torch.ones(1))._repr_html_()
    assert len(text) < 6_000 and "n" * 199 + "…" in text


def test_a_group_that_repeats_in_turn_is_a_row_with_its_members_below() -> None:
    layers = [layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.ReLU())]
    page = Page(fx_debug(nn.Sequential(*layers), torch.ones(1, 4))._repr_html_())
    shown = [text.strip() for text in page.classes["name"] if text != "call"]
    assert shown == ["Sequential", "(0, 1) … (6, 7) ×4", "0 … 6", "1 … 7"]


def test_a_long_name_is_cut_and_not_written_over_the_numbers() -> None:
    style = fx_debug(nn.ReLU(), torch.ones(1))._repr_html_()
    rules = dict(re.findall(r"\.fxd \.(\w+)\{([^}]*)\}", style))
    for name in ("name", "shape"):
        assert "overflow:hidden" in rules[name] and "text-overflow:ellipsis" in rules[name]
    assert "background:" in rules["bad"] and "background:" in rules["note"]  # readable whatever the page's own colour


def test_columns_stand_below_one_another_where_a_row_has_elements_that_are_not_finite() -> None:
    """Each row is laid out by itself: one with a column more would move the others in it."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    with torch.no_grad():
        model[1][0].bias[0] = torch.nan
    html = fx_debug(model, torch.ones(1, 2))._repr_html_()
    rows = re.findall(r'<(?:summary|div class="leaf")>(.*?)</(?:summary|div)>', html)
    cells = [re.findall(r'class="(name|shape|num|odd)', row) for row in rows]
    assert cells == [["name", "shape", *["num"] * 5, "odd"]] * 6
    assert re.findall(r'class="odd">(.*?)</span>', html)[2:] == [
        "",
        '<span class="bad">1 NaN',
        '<span class="bad">1 NaN',
        '<span class="bad">1 NaN',
    ]
    assert 'bad"></span>' not in html  # no empty boxes
    assert "odd" not in fx_debug(model[0], torch.ones(1, 2))._repr_html_().partition("</style>")[2]


def test_text_can_be_read_on_a_light_and_on_a_dark_page() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    trace = fx_debug(model, torch.full((1, 2), torch.nan))
    shown = [trace, trace.root, trace.root.outputs[0], fxdebug.check(trace), fxdebug.flops(trace)]
    assert [unreadable(each._repr_html_()) for each in shown] == [set()] * len(shown)
