"""The graph of a page: opening, colours, repeats, marks and keys, asserted by what the page says it draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import Stats, Trace
from fxdebug.analyses.numbers import numerics
from fxdebug.data.findings import Finding
from fxdebug.data.report import ReportData
from fxdebug.features.profile.report import SELF, TOTAL
from support.browser import wait_until

Page = Any
Open = Callable[..., Page]
Drawn = dict[str, Any]


class Layer(nn.Module):
    """A norm, two linear layers and a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Encoder(nn.Module):
    """Twelve equal layers; the eighth has weights a hundred times as large."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 8)
        self.layers = nn.ModuleList(Layer(8) for _ in range(12))
        self.head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2))
        self.unused = nn.Linear(2, 2)
        with torch.no_grad():
            self.layers[7].up.weight.mul_(100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Spoils(nn.Module):
    """Divides zero by zero."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (x - x)


class Crashing(nn.Module):
    """Raises in a module of a module, after a scripted one."""

    def __init__(self) -> None:
        super().__init__()
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4)))
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(5, 4)))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.scripted(x))


@pytest.fixture(scope="module")
def encoder() -> Trace:
    torch.manual_seed(0)
    with torch.no_grad():
        return fxdebug.fx_debug(Encoder().eval(), torch.randn(2, 3))


@pytest.fixture(scope="module")
def crashed() -> Trace:
    with pytest.raises(RuntimeError), torch.no_grad():
        fxdebug.fx_debug(Crashing(), torch.randn(2, 4))
    trace = fxdebug.last_failed()
    assert trace is not None
    return trace


def largest(trace: Trace, path: str) -> float:
    """Return the largest magnitude in what a call returned."""
    number = stats_of(trace, path).absmax
    assert number is not None
    return number


def stats_of(trace: Trace, path: str) -> Stats:
    """Return the statistics of what a call returned."""
    outputs = trace[path].outputs
    assert outputs is not None
    (value,) = outputs
    assert value.stats is not None
    return value.stats


def settled(page: Page) -> Page:
    page.evaluate("fxdebug.settle()")
    return page


def visible(page: Page, side: int | None = None) -> dict[str, Drawn]:
    """Return what is in sight, by key."""
    drawn = settled(page).evaluate("side => fxdebug.visible(side ?? undefined)", side)
    return {one["key"]: one for one in drawn}


def one(page: Page, path: str) -> Drawn:
    """Return where a call is drawn."""
    drawn = settled(page).evaluate("path => fxdebug.where(path)", path)
    assert drawn is not None, path
    return drawn


def set_state(page: Page, **state: Any) -> None:
    settled(page).evaluate("state => fxdebug.set(state)", state)
    settled(page)


def start(page: Page) -> None:
    """Close everything below the root, and choose nothing."""
    set_state(page, open=[0], selected=None, overlay="", filter=[], query="")


def click(page: Page, drawn: Drawn, *, title: bool = False, double: bool = False) -> None:
    canvas = page.locator(".graph canvas").first
    position = {"x": drawn["axis"] + (30 if title else 0), "y": drawn["y"] + (8 if title else drawn["h"] / 2)}
    canvas.dblclick(position=position) if double else canvas.click(position=position)
    settled(page)


# F4: folding ----------------------------------------------------------------------------------------------------------


def test_opening_a_box_moves_nothing_above_it_and_leaves_it_where_it_is(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    start(page)
    before = visible(page)
    layers = one(page, "layers.0")
    click(page, layers, double=True)
    after = visible(page)
    opened = after[layers["key"]]
    assert (layers["open"], opened["open"]) == (False, True)
    assert opened["h"] > 2 * layers["h"]
    assert (opened["axis"], opened["y"]) == pytest.approx((layers["axis"], layers["y"]), abs=0.01)
    above = [key for key, drawn in before.items() if drawn["y"] + drawn["h"] <= layers["y"]]
    assert above, "nothing was above"
    for key in above:
        assert (after[key]["axis"], after[key]["y"]) == pytest.approx((before[key]["axis"], before[key]["y"]), abs=0.01)


def test_closing_brings_back_the_picture_of_before(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    start(page)
    before = visible(page)
    click(page, one(page, "layers.0"), double=True)
    page.evaluate("fxdebug.close('layers.0')")
    assert {k: (d["x"], d["y"], d["w"]) for k, d in visible(page).items()} == {
        k: (d["x"], d["y"], d["w"]) for k, d in before.items()
    }


def test_what_was_open_inside_is_open_again(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    page.evaluate("fxdebug.open('layers.0.up')")
    assert one(page, "layers.0.up")["open"]
    head = one(page, "layers.0")
    page.evaluate("fxdebug.close('layers.0')")
    assert one(page, "layers.0.up")["key"] == head["key"], "a closed box stands for what is inside"
    page.evaluate("fxdebug.open('layers.0')")
    assert one(page, "layers.0.up")["open"]


# F5: repeats ----------------------------------------------------------------------------------------------------------


def test_equal_layers_are_drawn_once_and_say_least_middle_and_largest(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    start(page)
    layers = one(page, "layers.5")
    assert (layers["label"], layers["times"], layers["kind"]) == ("layers.0…11", 12, "repeat")
    assert one(page, "layers.0")["key"] == layers["key"]
    set_state(page, overlay="absmax")
    pool = one(page, "layers.5")["pool"]
    numbers = sorted(largest(encoder, f"layers.{i}") for i in range(12))
    assert (pool["count"], pool["min"], pool["max"]) == (12, numbers[0], numbers[-1])
    assert pool["median"] == pytest.approx((numbers[5] + numbers[6]) / 2)


def test_the_layer_that_stands_out_is_marked_and_can_be_chosen(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    page.evaluate("fxdebug.open('layers.0')")
    set_state(page, overlay="absmax")
    odd = one(page, "layers.0.up")["odd"]
    assert page.evaluate("call => fxdebug.payload.run.path(call)", odd["call"]) == "layers.7.up"
    set_state(page, selected=odd)
    chosen = one(page, "layers.7.up")
    assert (chosen["path"], chosen["selected"]) == ("layers.7.up", True)
    assert one(page, "layers.7")["label"] == "layers.7 of layers.0…11"


def test_marks_of_a_repeat_are_those_of_its_worst(encoder: Trace, open_page: Open, monkeypatch: Any) -> None:
    found = [
        ("advice", "layers.2.up"),
        ("error", "layers.9.up"),
        ("warning", "layers.4.down"),
        ("advice", "layers.5.down"),
    ]
    findings = tuple([Finding("told", severity, path, f"{path}#0", "linear", "so") for severity, path in found])
    monkeypatch.setattr(
        numerics, "check_numerics", lambda *_, **__: ReportData("check", "Encoder", (), findings=findings)
    )
    page = open_page(encoder)
    start(page)
    assert one(page, "layers.0")["finding"] == "error", "a closed repeat has the mark of its worst member"
    page.evaluate("fxdebug.open('layers.0')")
    marks = {name: one(page, f"layers.0.{name}")["finding"] for name in ("norm", "up", "down")}
    assert marks == {"norm": "", "up": "error", "down": "warning"}
    set_state(page, overlay="findings")
    assert one(page, "layers.0.up")["fill"] == one(page, "layers.9.up")["fill"] != one(page, "layers.0.norm")["fill"]
    for layer, mark in ((2, "advice"), (3, ""), (9, "error")):  # one that was chosen shows its own
        page.evaluate("path => fxdebug.select(path)", f"layers.{layer}.up")
        assert one(page, f"layers.{layer}.up")["finding"] == mark


def test_the_next_member_of_a_repeat_is_one_key_away(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    page.evaluate("fxdebug.select('layers.3.norm')")
    settled(page).locator(".graph-pane > canvas").press(".")
    settled(page)
    assert page.evaluate("fxdebug.payload.run.path(fxdebug.state().selected.call)") == "layers.4.norm"


# F6: overlays ---------------------------------------------------------------------------------------------------------


def test_every_reading_of_an_overlay_is_the_number_of_the_trace(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    set_state(page, overlay="std")
    for path in ("embed", "layers.7.down", "head.1"):
        read = page.evaluate("path => fxdebug.reading(path)", path)
        assert read["value"] == pytest.approx(stats_of(encoder, path).std, rel=1e-6)


def test_a_closed_box_stands_for_all_that_is_in_it_and_the_timeline_has_the_times_of_a_profile(
    encoder: Trace, open_page: Open
) -> None:
    seconds = {"layers.0": 0.001, "layers.0.up": 0.25, "layers.0.down": 0.5}
    own = dict.fromkeys(encoder.numbers("duration"), 0.125) | {f"{path}#0": time for path, time in seconds.items()}
    total = dict.fromkeys(own, 1.0) | {f"{encoder.model}#0": 2000.0}
    timed = encoder.with_measures(
        ReportData("profile", encoder.model, (), measures={SELF.name: own, TOTAL.name: total})
    )
    inside = [call for call in timed.calls if call.path == "layers.0" or call.path.startswith("layers.0.")]
    page = open_page(timed)
    set_state(page, overlay="time.self")
    page.evaluate("fxdebug.close('layers.0')")
    closed = settled(page).evaluate("fxdebug.reading('layers.0').value")
    assert closed == pytest.approx(sum(own[f"{call.path}#0"] for call in inside))
    page.evaluate("fxdebug.open('layers.0')")
    assert settled(page).evaluate("fxdebug.reading('layers.0').value") == pytest.approx(0.001)
    spans = page.evaluate("fxdebug.payload.run.data.spans")
    assert spans["by"].startswith("Times of profile") and len(spans["call"]) == len(timed.calls)
    assert [spans["end"][i] - spans["begin"][i] for i in (0, 1)] == [2000.0, 1.0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_overlays_colour_boxes_in_both_themes(encoder: Trace, open_page: Open, theme: str) -> None:
    page = open_page(encoder, theme=theme)
    page.evaluate("fxdebug.open('head')")
    plain = one(page, "head.0")["fill"]
    set_state(page, overlay="absmax")
    fills = {one(page, path)["fill"] for path in ("embed", "head.0", "head.1")}
    assert len(fills) > 1
    assert plain not in fills
    legend = page.evaluate("fxdebug.legend()")
    assert legend["kind"] == "log"
    assert sum(legend["entries"].values()) == page.evaluate("fxdebug.payload.run.data.values.shape.length")


def test_the_legend_filters_what_it_is_clicked_for(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    page.evaluate("fxdebug.open('head')")
    set_state(page, overlay="absmax")
    entry = page.evaluate("fxdebug.reading('embed').entry")
    bin = page.locator(f".legend-bin >> nth={int(entry.removeprefix('bin'))}")
    bin.click()
    assert page.evaluate("fxdebug.state().filter") == [entry]
    drawn = visible(page)
    for one_drawn in drawn.values():
        if one_drawn["times"] == 1 and one_drawn["call"] >= 0 and one_drawn["item"] < 0 and not one_drawn["pool"]:
            read = page.evaluate("place => fxdebug.reading(place)", {"call": one_drawn["call"], "item": -1})
            assert one_drawn["faded"] == (read["entry"] == entry), one_drawn["path"]
    assert one(page, "embed")["faded"]
    bin.click()
    assert not one(page, "embed")["faded"]


def test_what_is_not_finite_has_a_colour_of_its_own(open_page: Open) -> None:
    with torch.no_grad():
        trace = fxdebug.fx_debug(nn.Sequential(nn.Linear(3, 3), Spoils(), nn.ReLU()), torch.ones(1, 3))
    page = open_page(trace, check=False)
    set_state(page, overlay="mean")
    fine, spoiled, after = (one(page, path) for path in "012")
    assert (fine["notFinite"], spoiled["notFinite"], after["notFinite"]) == (False, True, True)
    assert spoiled["fill"] == after["fill"] != fine["fill"]
    assert page.evaluate("fxdebug.legend().entries.nan") > 0
    page.locator(".legend-chip", has_text="not finite").click()
    assert [one(page, path)["faded"] for path in "012"] == [False, True, True]


def test_a_condition_colours_what_it_holds_for(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    page.evaluate("fxdebug.open('head')")
    limit = largest(encoder, "head.0")
    set_state(page, overlay=f"where: absmax > {limit * 0.999}")
    holds = {path: page.evaluate("path => fxdebug.reading(path).entry", path) for path in ("embed", "head.0", "head.1")}
    expected = {path: largest(encoder, path) > limit * 0.999 for path in holds}
    assert {path: entry == "matches" for path, entry in holds.items()} == expected


def test_status_and_findings_are_overlays_too(crashed: Trace, encoder: Trace, open_page: Open) -> None:
    page = open_page(crashed)
    set_state(page, overlay="status")
    entry = "path => fxdebug.reading(path).entry"
    entries = {path: page.evaluate(entry, path) for path in ("scripted", "body.0", "body.1.1")}
    assert entries == {"scripted": "opaque", "body.0": str(crashed["body.0"].status), "body.1.1": "failed"}


def test_what_is_searched_for_is_lit_and_counted_in_closed_boxes(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    start(page)
    set_state(page, query="op:relu")
    layers, embed = one(page, "layers.0"), one(page, "embed")
    assert (layers["hits"], layers["hit"], layers["faded"]) == (12, False, False)
    assert (embed["hits"], embed["faded"]) == (0, True)
    page.evaluate("fxdebug.open('layers.0')")
    hits = [drawn["label"] for drawn in visible(page).values() if drawn["hit"]]
    assert hits == ["relu"]


# F8, F9: choosing, with the mouse and with keys -----------------------------------------------------------------------


def test_a_click_chooses_and_the_tree_follows(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    click(page, one(page, "embed"))
    assert page.evaluate("fxdebug.payload.run.path(fxdebug.state().selected.call)") == "embed"
    assert "embed" in page.locator("[role=treeitem][aria-selected=true]").inner_text()


def test_what_is_chosen_elsewhere_is_opened_and_brought_into_sight(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    start(page)
    page.evaluate("fxdebug.select('layers.9.down')")
    chosen = one(page, "layers.9.down")
    size = page.evaluate("fxdebug.layout()")
    assert chosen["selected"]
    assert chosen["path"] == "layers.9.down"
    assert 0 <= chosen["y"] <= size["height"] - chosen["h"]
    assert 0 <= chosen["x"] <= size["width"] - chosen["w"]


def test_the_graph_is_walked_with_arrows_and_opened_with_enter(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    start(page)
    canvas = page.locator(".graph-pane > canvas")
    canvas.focus()
    seen = []
    for _ in range(3):
        canvas.press("ArrowDown")
        seen.append(page.evaluate("fxdebug.payload.run.path(fxdebug.state().selected.call)"))
    assert seen == ["embed", "layers.0", "head"]
    canvas.press("Enter")
    assert one(page, "head")["open"]
    canvas.press("ArrowDown")
    assert page.evaluate("fxdebug.payload.run.path(fxdebug.state().selected.call)") == "head.0"
    canvas.press("Escape")
    canvas.press("Enter")
    assert not one(page, "head")["open"]
    canvas.press("ArrowUp")
    assert page.evaluate("fxdebug.payload.run.path(fxdebug.state().selected.call)") == "layers.0"


def test_zoom_keeps_the_point_under_the_mouse(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    before = one(page, "embed")
    box = page.locator(".graph-pane > canvas").bounding_box()
    page.mouse.move(box["x"] + before["axis"], box["y"] + before["y"])
    page.keyboard.down("Control")
    page.mouse.wheel(0, -80)
    page.keyboard.up("Control")
    wait_until(page, "w => fxdebug.where('embed').w > w * 1.05", before["w"])
    after = one(page, "embed")
    assert (after["axis"], after["y"]) == pytest.approx((before["axis"], before["y"]), abs=1)


# F10: runs that are not whole -----------------------------------------------------------------------------------------


def test_a_crash_is_drawn_where_it_happened(crashed: Trace, open_page: Open) -> None:
    page = open_page(crashed)
    drawn = {path: one(page, path) for path in ("scripted", "body", "body.0", "body.1", "body.1.0", "body.1.1")}
    marks = {path: one_drawn["mark"] for path, one_drawn in drawn.items() if one_drawn["mark"]}
    assert marks == {"scripted": "opaque", "body": "passed on", "body.1": "passed on", "body.1.1": "failed"}
    assert drawn["body.1"]["open"], "the way to the failure is open at first"
    assert "cannot be multiplied" in page.locator("body").inner_text()


def test_a_module_that_was_never_called_is_named(encoder: Trace, open_page: Open) -> None:
    page = open_page(encoder)
    set_state(page, view="findings")
    assert "unused" in page.locator("body").inner_text()


def test_the_page_of_a_model_that_does_nothing_is_drawn(open_page: Open) -> None:
    page = open_page(fxdebug.fx_debug(nn.Identity(), torch.ones(1)))
    assert page.evaluate("fxdebug.layout().boxes") == 1


def test_a_map_shows_which_part_of_a_large_drawing_is_in_the_window(open_page: Open) -> None:
    tall = fxdebug.fx_debug(nn.Sequential(*[nn.Linear(2 + i, 3 + i) for i in range(30)]), torch.ones(1, 2))
    page = settled(open_page(tall))
    small = page.locator(".minimap")
    before, bounds = page.evaluate("fxdebug.layout().camera.y"), small.bounding_box()
    small.click(position={"x": bounds["width"] / 2, "y": bounds["height"] - 6})
    page.wait_for_function("before => fxdebug.layout().camera.y < before - 500", arg=before)
    page.get_by_role("button", name="Show all").click()
    small.wait_for(state="hidden")
