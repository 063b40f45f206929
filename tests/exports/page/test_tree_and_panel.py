"""Tree, panel, address, keyboard and themes of the page: one selection, all of it without a mouse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import Trace
from support.browser import wait_until

OpenPage = Callable[..., Any]


class Layer(nn.Module):
    """A linear layer behind a norm, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.mix(self.norm(x)))


class Model(nn.Module):
    """Three layers, a head, and a module that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(4, 2)
        self.spare = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        if x.sum() > -1000:
            x = x * 2
        return self.head(x)


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(0)
    with torch.no_grad():
        return fxdebug.fx_debug(Model(), torch.randn(5, 4), values="tensors")


@pytest.fixture(scope="module")
def crashed() -> Trace:
    model = Model()
    model.head = nn.Linear(3, 2)
    with pytest.raises(RuntimeError):
        fxdebug.fx_debug(model, torch.randn(5, 4))
    failed = fxdebug.last_failed()
    assert failed is not None
    return failed


def rows(page: Any) -> list[str]:
    page.evaluate("window.fxdebug.settle()")
    return [row["name"] for row in page.evaluate("window.fxdebug.tree().rows")]


def selected(page: Any) -> str:
    chosen: str = page.evaluate("window.fxdebug.selected()")
    return chosen


def sections(page: Any) -> list[str]:
    """Return the headings of the panel, in order."""
    return [heading.inner_text() for heading in page.locator(".panel h3").all()]


def wait_for_address(page: Any, *parts: str) -> str:
    """Return the address from # on, once the page has written these parts of it."""
    wait_until(page, "parts => parts.every(part => location.hash.includes(part))", list(parts))
    text: str = page.evaluate("location.hash")
    return text


# One selection -------------------------------------------------------------------------------------------


def test_a_choice_in_the_graph_is_chosen_in_the_tree_and_described_in_the_panel(
    trace: Trace, open_page: OpenPage
) -> None:
    page = open_page(trace)
    page.evaluate("window.fxdebug.select('layers.1.mix#0')")
    page.evaluate("window.fxdebug.settle()")
    row = page.get_by_role("treeitem", selected=True)
    assert row.get_attribute("aria-level") == "3"
    assert row.locator(".name").inner_text() == "mix"
    assert page.get_by_role("heading", level=2).inner_text().split() == ["mix", "Linear"]


def test_a_choice_in_the_tree_is_the_state_of_the_page(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.get_by_role("treeitem").filter(has_text="head").click()
    assert selected(page) == "head"
    assert page.evaluate("window.fxdebug.state().selected") == {"call": trace.find("head")[0].index, "item": -1}


def test_the_panel_of_a_call_has_its_line_of_code_its_tensors_and_its_neighbours(
    trace: Trace, open_page: OpenPage
) -> None:
    page = open_page(trace)
    page.evaluate("window.fxdebug.select('layers.1.mix#0')")
    assert sections(page) == [
        "Source", "Outputs", "Inputs", "Producers", "Consumers", "Parameters", "Measures", "Graph",
    ]  # fmt: skip
    panel = page.locator(".panel")
    text = panel.inner_text()
    assert "return x + torch.relu(self.mix(self.norm(x)))" in text
    assert "test_tree_and_panel.py:" in text
    value = trace.find("layers.1.mix")[0].outputs[0]
    assert f"{value.stats.mean:.4g}".replace("-", "−") in text
    assert text.count("5×4") >= 2 and "float32 · cpu · 80 B" in text
    assert page.get_by_role("img", name="histogram of this tensor").count() == 2
    page.locator(".panel section", has_text="Consumers").get_by_role("button", name="relu").click()
    assert selected(page) == "layers.1/relu"


def test_the_panel_of_an_operation_has_its_operands_by_name_and_marks_its_line_in_the_graph(
    trace: Trace, open_page: OpenPage
) -> None:
    page = open_page(trace, "#select=layers.2%230/add")
    assert selected(page) == "layers.2/add"
    assert sections(page) == [
        "Source",
        "Operation",
        "Result",
        "Operands",
        "Producers",
        "Consumers",
        "Measures",
        "Graph",
    ]
    slots = page.locator(".panel section", has_text="Operands").locator(".slot")
    assert [slot.inner_text() for slot in slots.all()] == ["x", "relu"]
    assert page.locator(".panel .marked").inner_text().strip().startswith("add =")


def test_reasons_guards_and_layers_with_the_same_forward_are_in_the_panel(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace, "#select=%230")
    assert "verified" in page.locator(".chips").inner_text()
    guards = page.locator(".panel section", has_text="The graph assumes").inner_text()
    assert "is True" in guards and "test_tree_and_panel.py:" in guards
    page.evaluate("window.fxdebug.select('layers.0#0')")
    assert "1 of 3 with the same forward" in page.locator(".panel").inner_text()
    page.get_by_role("button", name="Next: layers.1").click()
    assert selected(page) == "layers.1"


def test_modules_that_were_never_called_are_listed(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace, "#view=findings")
    group = page.locator(".group", has_text="Never called")
    assert group.locator("code").all_inner_texts() == ["spare"]


def test_a_crash_is_told_first_and_leads_to_the_call_that_raised(crashed: Trace, open_page: OpenPage) -> None:
    page = open_page(crashed)
    banner = page.locator(".banner")
    assert banner.inner_text().startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    banner.get_by_role("button", name="raised in head").click()
    assert selected(page) == "head"
    assert sections(page)[0] == "Raised here"
    assert "self.head(x)" in page.locator(".panel").inner_text()
    page.evaluate("window.fxdebug.settle()")
    assert page.get_by_role("treeitem", selected=True).get_by_role("img", name="raised an exception").count() == 1


def test_a_call_that_raised_is_drawn_below_what_it_was_given(crashed: Trace, open_page: OpenPage) -> None:
    page = open_page(crashed)
    page.evaluate("window.fxdebug.settle()")
    given, raised = (page.evaluate("what => window.fxdebug.where(what)", one) for one in ("layers.2#0", "head#0"))
    assert raised["y"] > given["y"]
    assert given["x"] < raised["x"] + raised["w"] / 2 < given["x"] + given["w"]


# The address ---------------------------------------------------------------------------------------------


def test_the_address_is_empty_at_first_and_has_the_choice_the_colours_the_search_and_the_view(
    trace: Trace, open_page: OpenPage
) -> None:
    page = open_page(trace)
    assert page.evaluate("location.hash") == ""
    page.evaluate("window.fxdebug.select('layers.1.mix#0')")
    page.evaluate("window.fxdebug.set({overlay: 'absmax', query: 'type:Linear absmax > 1', view: 'findings'})")
    expected = "#select=layers.1.mix%230&colour=absmax&search=type:Linear+absmax+%3E+1&view=findings"
    assert wait_for_address(page, "view=findings") == expected


def test_an_address_restores_the_state_also_of_what_is_open(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.evaluate("window.fxdebug.open('layers.2.mix')")
    page.evaluate("window.fxdebug.set({overlay: 'where: std > 0.5'})")
    page.evaluate("window.fxdebug.select('layers.2#0')")
    state = page.evaluate("window.fxdebug.state()")
    written = wait_for_address(page, "select=layers.2%230", "colour=where", "open=")
    again = open_page(trace, written).evaluate("window.fxdebug.state()")
    assert {**again, "open": sorted(again["open"])} == {**state, "open": sorted(state["open"])}


NOWHERE = (
    "#select=nowhere%230", "#view=nothing&open=1.x.99999", "#%E0%A4%A", "#select=head%23-1&colour=nothing", "#&&==",
)  # fmt: skip


@pytest.mark.parametrize("hash", NOWHERE)
def test_an_address_that_names_nothing_opens_the_page_all_the_same(
    trace: Trace, open_page: OpenPage, hash: str
) -> None:
    page = open_page(trace, hash)
    assert selected(page) == ""
    assert rows(page)[0] == "Model"


# Keyboard and roles --------------------------------------------------------------------------------------


def test_the_tree_is_walked_with_arrow_keys(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.keyboard.press("t")
    tree = page.get_by_role("tree")
    assert tree.evaluate("tree => tree === document.activeElement")
    seen = []
    for key in ("Home", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "End", "ArrowUp"):
        page.keyboard.press(key)
        seen.append(selected(page))
    assert seen == [
        "Model", "layers.0", "layers.0.norm", "layers.0.norm", "layers.0.norm", "layers.0", "head", "Model/mul",
    ]  # fmt: skip
    page.evaluate("window.fxdebug.settle()")
    chosen = page.get_by_role("treeitem", selected=True)
    assert tree.get_attribute("aria-activedescendant") == chosen.get_attribute("id")


def test_rows_say_their_level_their_place_among_siblings_and_whether_they_are_expanded(
    trace: Trace, open_page: OpenPage
) -> None:
    page = open_page(trace)
    rows(page)
    root = page.get_by_role("treeitem").first
    assert (root.get_attribute("aria-level"), root.get_attribute("aria-expanded")) == ("1", "true")
    first = page.get_by_role("treeitem").nth(1)
    assert (first.get_attribute("aria-level"), first.get_attribute("aria-posinset")) == ("2", "1")
    assert int(first.get_attribute("aria-setsize")) >= 4


def test_enter_in_the_tree_opens_and_closes_the_box_in_the_graph(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.evaluate("window.fxdebug.select('head#0')")
    page.keyboard.press("t")
    head = trace.find("head")[0].index
    before = head in page.evaluate("window.fxdebug.state().open")
    page.keyboard.press("Enter")
    assert (head in page.evaluate("window.fxdebug.state().open")) is not before


def test_every_control_has_a_name_and_is_reached_with_tab(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input, select, [role=tree], [role=separator], canvas[tabindex]")]
        .filter(one => !(one.getAttribute("aria-label") || one.textContent.trim() || one.closest("label")))
        .map(one => one.outerHTML)"""
    )
    assert unnamed == []
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('role') || document.activeElement.tagName"))
    assert {"combobox", "SELECT", "BUTTON", "tree", "tab", "separator", "application"} <= reached


def test_the_focus_is_visible(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.keyboard.press("Tab")
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(style) == "solid"


def test_the_help_lists_every_key_and_closes_with_escape(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys and search")
    assert dialog.get_by_role("heading", level=3).all_inner_texts() == ["Page", "In the tree", "In the graph", "Search"]
    assert "absmax > 100" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def test_letters_that_are_typed_into_the_search_are_no_commands(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.keyboard.press("/")
    page.keyboard.type("2?tT[]d")
    assert page.get_by_role("combobox").first.input_value() == "2?tT[]d"
    assert page.evaluate("window.fxdebug.state().view") == "graph"
    assert page.get_by_role("dialog").count() == 0


# Themes, narrow screens, paper -----------------------------------------------------------------------------


def test_the_theme_is_that_of_the_system_until_one_is_chosen(trace: Trace, open_page: OpenPage) -> None:
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light, dark = open_page(trace, theme="light"), open_page(trace, theme="dark")
    colours = light.evaluate(paper), dark.evaluate(paper)
    assert colours[0] != colours[1]
    light.keyboard.press("T")
    light.keyboard.press("T")
    assert light.evaluate("window.fxdebug.state().theme") == "dark"
    assert light.evaluate(paper) == colours[1]
    assert light.evaluate("localStorage.getItem('fxdebug theme')") == "dark"
    # How soon a browser hands that to the process of the next document is its own affair: it is there beforehand.
    light.context.add_init_script("localStorage.setItem('fxdebug theme', 'dark')")
    light.reload()
    light.wait_for_selector("html[data-ready]", state="attached")
    assert light.evaluate(paper) == colours[1]


def test_text_has_enough_contrast_in_both_themes(trace: Trace, open_page: OpenPage) -> None:
    script = """words => {
        const parts = text => text.match(/[\\d.]+/g).map(Number);
        const linear = c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
        const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
        const behind = one => {
            for (; one; one = one.parentElement) {
                const colour = getComputedStyle(one).backgroundColor;
                if (!/, 0\\)$/.test(colour)) return colour;
            }
        };
        const found = new Set();
        for (const one of document.querySelectorAll(words)) {
            if (!one.textContent.trim() || !one.offsetParent) continue;
            const [a, b] = [light(parts(getComputedStyle(one).color)), light(parts(behind(one)))];
            const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
            if (ratio < 4.5) found.add([one.className || one.tagName, ratio.toFixed(2)].join(" "));
        }
        return [...found];
    }"""
    words = "h1, h2, h3, p, .name, .type, .shape, .stat-name, .stat-number, .link, .remarks, .chip, th, td"
    for theme in ("light", "dark"):
        page = open_page(trace, "#select=layers.1.mix%230", theme=theme)
        rows(page)
        assert page.evaluate(script, words) == [], theme


def test_a_narrow_screen_shows_one_part_at_a_time_and_nothing_is_cut_off(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace, width=390, height=780)
    width = "document.documentElement.scrollWidth"
    for part, shown in (("Tree", ".tree"), ("Details", ".panel"), ("Graph", ".main")):
        page.get_by_role("navigation", name="Parts of the page").get_by_role("button", name=part).click()
        assert [page.locator(one).is_visible() for one in (".tree", ".panel", ".main")] == [
            one == shown for one in (".tree", ".panel", ".main")
        ]
        assert page.evaluate(width) == 390


def test_on_paper_there_are_no_controls(trace: Trace, open_page: OpenPage) -> None:
    page = open_page(trace)
    page.emulate_media(media="print")
    assert not any(page.locator(one).first.is_visible() for one in (".search", ".icons", ".tree", ".tabs"))
    assert page.locator(".panel").is_visible() and page.get_by_role("heading", level=1).is_visible()


# Hostile names --------------------------------------------------------------------------------------------

NAMES = ("</script><script>alert(1)</script>", "<!--", "a\u2028b", "\u202egnp", "n" * 10_000, "'\"&\x00\x1b[31m")


def test_hostile_names_are_nothing_but_text(open_page: OpenPage) -> None:
    model = nn.Sequential()
    for name in NAMES:
        model.add_module(name, nn.Linear(3, 3))
    trace = fxdebug.fx_debug(model, torch.ones(1, 3))
    page = open_page(trace)
    shown = rows(page)
    assert shown[1] == NAMES[0] and shown[2] == NAMES[1]
    texts = page.locator(".row .name").all_inner_texts()
    assert NAMES[0] in texts and "<!--" in texts
    assert not any(mark in text for text in texts for mark in "\u2028\u202e\x1b\x00")
    assert page.locator("script").count() == page.evaluate("document.scripts.length") <= 5
    for call in trace.calls[1:]:
        page.evaluate("call => window.fxdebug.select({call, item: -1})", call.index)
        assert page.get_by_role("heading", level=2).inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


# Many rows --------------------------------------------------------------------------------------------------


def test_only_rows_in_sight_exist(open_page: OpenPage) -> None:
    model = nn.Sequential(*[nn.Sequential(*[nn.Linear(2, 2) for _ in range(30)]) for _ in range(20)])
    page = open_page(fxdebug.fx_debug(model, torch.ones(1, 2)))
    page.evaluate("window.fxdebug.expand(9)")
    rows(page)
    assert page.evaluate("window.fxdebug.tree().count") == 1 + 20 + 600 + 600
    assert page.get_by_role("treeitem").count() < 70
    page.keyboard.press("t")
    page.keyboard.press("End")
    page.evaluate("window.fxdebug.settle()")
    assert selected(page) == "19.29/linear"
    assert page.get_by_role("treeitem", selected=True).is_visible()


def test_a_page_in_a_sandboxed_frame_works_without_storage(trace: Trace, browser: Any, tmp_path: Path) -> None:
    from html import escape

    text = trace.export(tmp_path / "run.html").read_text(encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(f'<iframe sandbox="allow-scripts" width="900" height="600" srcdoc="{escape(text)}"></iframe>')
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(frame.as_uri())
    inner = page.frame_locator("iframe")
    inner.locator("html[data-ready]").wait_for(state="attached")
    inner.get_by_role("treeitem").filter(has_text="head").click()
    inner.get_by_role("heading", level=2, name="head").wait_for()
    page.wait_for_timeout(250)  # an error that comes later is found, too; nothing is waited for
    assert problems == []
    page.close()
