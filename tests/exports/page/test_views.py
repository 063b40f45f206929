"""The views beside the graph: times, memory, attention, distributions, findings, reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import api
from fxdebug.features.training.saved.training_file import read_training

OpenPage = Callable[..., Any]


class Attending(nn.Module):
    """Attention over five tokens, then a layer that makes infinities."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 24)
        self.out = nn.Linear(8, 2)
        self.unused = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2)) / torch.zeros(2)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model, x = Attending(), torch.randn(2, 5, 8)
    trace = fxdebug.fx_debug(model, x, values="tensors")
    reports = [fxdebug.profile(model, x, repeats=3), fxdebug.memory(model, x)]
    return trace.export(tmp_path_factory.mktemp("views") / "run.html", reports=reports)


def show(open_page: OpenPage, page_file: Path, view: str) -> Any:
    return open_page(page_file, f"#view={view}")


def test_there_is_a_view_for_all_that_the_run_has_and_none_for_what_it_has_not(
    page_file: Path, open_page: OpenPage
) -> None:
    page = open_page(page_file)
    assert [tab.evaluate("tab => tab.firstChild.textContent") for tab in page.get_by_role("tab").all()] == [
        "Graph", "Timeline", "Memory", "Attention", "Distributions", "Findings", "Reports",
    ]  # fmt: skip
    plain = open_page(fxdebug.fx_debug(nn.Linear(2, 2), torch.ones(1, 2)))
    assert plain.get_by_role("tab").all_inner_texts() == ["Graph", "Timeline", "Findings"]


def test_tabs_are_walked_with_arrow_keys_and_numbers(page_file: Path, open_page: OpenPage) -> None:
    page = open_page(page_file)
    page.get_by_role("tab", name="Graph").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).inner_text() == "Timeline"
    page.keyboard.press("3")
    assert page.get_by_role("tab", selected=True).inner_text() == "Memory"
    assert page.get_by_role("tabpanel").count() == 1


def test_the_timeline_ranks_calls_by_their_own_time_and_leads_to_them(page_file: Path, open_page: OpenPage) -> None:
    page = show(open_page, page_file, "timeline")
    ranked = page.locator(".longest th").all_inner_texts()
    assert sorted(ranked) == ["Attending", "mix", "out"]
    spans = page.evaluate("window.fxdebug.payload.run.data.spans")
    own = {spans["call"][i]: spans["end"][i] - spans["begin"][i] for i in range(3)}
    own[0] -= own[1] + own[2]
    names = {0: "Attending", 1: "mix", 2: "out"}
    assert ranked == [names[call] for call in sorted(own, key=own.__getitem__, reverse=True)]
    page.locator(".longest").get_by_role("button", name="mix").click()
    assert page.evaluate("window.fxdebug.selected()") == "mix"


def test_the_memory_curve_is_read_point_by_point(page_file: Path, open_page: OpenPage) -> None:
    page = show(open_page, page_file, "memory")
    chart = page.get_by_role("img", name="memory: ")
    chart.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator(".view-memory .chart-reading").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator(".view-memory .chart-reading").inner_text() != first
    assert first.startswith("at 0: parameters ")


def test_attention_shows_every_head_and_the_weights_of_a_token(page_file: Path, open_page: OpenPage) -> None:
    page = show(open_page, page_file, "attention")
    heads = page.get_by_role("group", name="Heads").get_by_role("button")
    assert heads.count() == 2
    heads.nth(1).click()
    assert page.get_by_role("button", name="Head 1", pressed=True).count() == 1
    weights = [float(token.get_attribute("title")) for token in page.locator(".token").all()]
    assert len(weights) == 5 and sum(weights) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_weight_that_is_nan_is_said_to_be_none(open_page: OpenPage, theme: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 5, 8)
    x[0, 4] = torch.nan
    page = open_page(fxdebug.fx_debug(Attending(), x, values="tensors"), f"#view=attention&theme={theme}")
    assert {token.get_attribute("title") for token in page.locator(".token").all()} == {"NaN"}
    colours = page.locator("canvas.map").first.evaluate(
        "map => new Set(Array.from({length: 25}, (_, i) => "
        "map.getContext('2d').getImageData(i % 5, Math.floor(i / 5), 1, 1).data.join())).size"
    )
    assert colours == 1  # every query sees the broken key


def test_every_result_that_was_kept_has_its_distribution(page_file: Path, open_page: OpenPage) -> None:
    page = show(open_page, page_file, "distributions")
    assert page.locator(".histogram-card header .link").all_inner_texts() == ["mix", "out"]
    bars = page.evaluate(
        "(run => run.histogram(run.outputOf(window.fxdebug.call('mix#0'))).counts.reduce((a, b) => a + b))"
        "(window.fxdebug.payload.run)"
    )
    assert bars == 2 * 5 * 24


def test_findings_say_what_happened_and_lead_there(page_file: Path, open_page: OpenPage) -> None:
    page = show(open_page, page_file, "findings")
    card = page.locator(".finding").first
    assert "a division by 0" in card.inner_text()
    card.get_by_role("button").click()
    assert page.evaluate("window.fxdebug.selected()").startswith("Attending/")
    assert page.locator(".panel .finding").count() == 1
    assert page.locator(".group", has_text="Never called").locator("code").all_inner_texts() == ["unused"]


def test_tables_of_reports_are_sorted_by_their_headings(page_file: Path, open_page: OpenPage) -> None:
    page = show(open_page, page_file, "reports")
    report = page.locator(".report", has_text="profile").first
    column = lambda: report.locator("tbody tr td:nth-child(1)").all_inner_texts()  # noqa: E731
    report.get_by_role("columnheader", name="call").get_by_role("button").click()
    down = column()
    report.get_by_role("columnheader", name="call").get_by_role("button").click()
    assert report.get_by_role("columnheader", name="call").get_attribute("aria-sort") == "ascending"
    assert column() == down[::-1] and len(set(down)) == 3


def test_a_run_without_a_profile_shows_its_own_durations_in_time(open_page: OpenPage) -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
    page = open_page(fxdebug.fx_debug(model, torch.ones(4, 8)), "#view=timeline")
    assert "which recording makes slower" in page.get_by_role("tabpanel", name="Timeline").inner_text()
    names = page.locator(".longest th").all_inner_texts()
    assert sorted(names) == ["0", "1", "2", "Sequential"]


def test_modules_that_were_never_called_stand_with_the_call_that_left_them_out(
    page_file: Path, open_page: OpenPage
) -> None:
    page = open_page(page_file)
    section = page.locator(".panel section", has=page.get_by_role("heading", name="Never called"))
    assert section.inner_text().split() == ["Never", "called", "unused", "Identity"]


# A watched training ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve steps of five layers, every third watched."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = tmp_path_factory.mktemp("training")
    with fxdebug.watch(model, every=3, save=folder):
        for _ in range(12):
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return folder


def test_a_training_is_curves_over_its_steps(training: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(api.export_training(training, tmp_path / "training.html"))
    assert page.get_by_role("tab", selected=True).inner_text() == "Training"
    titles = page.locator("figcaption b").all_inner_texts()
    whole = ["loss", "learning rate", "update/weight", "grad norm", "time"]
    assert titles[:7] == [*whole, "Layers", "absmax of results"]
    parts = page.locator("figure", has_text="since the step before").locator(".curve-names span").all_inner_texts()
    assert parts == ["time", "before the forward", "forward", "backward", "optimizer"]
    assert page.locator("figure .usual title").first.text_content() == "usual: 0.0001 to 0.01"
    assert page.locator(".answer").inner_text() == "cannot tell yet (12 of 20 steps)"
    lines = page.locator("figure", has_text="absmax of results").locator(".curve")
    assert lines.count() == 6  # the model and its layers
    record = read_training(training)
    loss = page.get_by_role("img", name="loss: loss")
    loss.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".chart-reading").first.inner_text() == f"at 1: loss {record.steps[1].loss:.4g}"


def test_beside_the_loss_lies_that_of_a_constant_answer(tmp_path: Path, open_page: OpenPage) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, save=tmp_path / "training"):
        for _ in range(5):
            x = torch.randn(8, 4)
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
            optimizer.zero_grad()
    page = open_page(api.export_training(tmp_path / "training", tmp_path / "training.html"))
    names = page.locator("figure", has_text="mean of what backward was called on").locator(".curve-names span")
    assert names.all_inner_texts() == ["loss", "a constant answer"]


def test_of_many_curves_that_of_the_chosen_module_is_lit(training: Path, tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(api.export_training(training, tmp_path / "training.html"))
    page.evaluate("fxdebug.select('2')")
    of_parameters = page.locator("figure", has_text="grad of parameters")
    assert of_parameters.locator(".curve").count() == 10
    assert of_parameters.locator(".curve.chosen").count() == 2  # weight and bias


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve steps of four blocks, one of which gets almost no gradient, every third watched."""
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = tmp_path_factory.mktemp("stalled")
    with fxdebug.watch(model, every=3, save=folder):
        for _ in range(12):
            model(torch.randn(8, 4)).pow(2).mean().backward()
            for parameter in model[2].parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(1e-9)
            optimizer.step()
            optimizer.zero_grad()
    return folder


def test_layers_are_a_map_over_the_steps_folded_by_repeats_the_worst_first(
    stalled: Path, tmp_path: Path, open_page: OpenPage
) -> None:
    page = open_page(api.export_training(stalled, tmp_path / "training.html"))
    names = page.locator(".heat-name")
    assert names.all_inner_texts() == ["0 … 3 · 4 blocks"]
    names.first.click()
    rows = names.all_inner_texts()
    assert rows[:2] == ["0 … 3 · 4 blocks", "2"] and sorted(rows[2:]) == ["0", "1", "3"]
    names.nth(1).click()
    assert sorted(names.all_inner_texts()[2:4]) == ["2.inner.0.weight", "2.inner.2.weight"]
    cells = page.locator(".heat-cells").nth(2)
    cells.focus()
    page.keyboard.press("ArrowRight")
    name = names.nth(2).inner_text()
    watched = read_training(stalled).watched[1]
    gradient = next(one.gradient for one in watched.parameters if one.name == name)
    assert gradient is not None
    reading = page.locator(".heat-map .chart-reading")
    assert reading.inner_text().startswith(f"step 3, {name}: {gradient.norm:.2e}"[:-4])
    page.keyboard.press("Enter")
    assert page.evaluate("window.fxdebug.selected()") == name.removesuffix(".weight")
    page.locator(".heat-map select").select_option(label="update/weight of parameters")
    assert "usual, 0.0001 to 0.01" in page.locator(".heat-legend").inner_text()


@pytest.mark.parametrize("width", [640, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_map_of_layers_overlaps_nothing(
    stalled: Path, tmp_path: Path, open_page: OpenPage, width: int, theme: str
) -> None:
    page = open_page(api.export_training(stalled, tmp_path / "training.html"), width=width, theme=theme)
    page.locator(".heat-name").first.click()
    boxes = page.evaluate(
        "() => [...document.querySelectorAll('.heat > *, .heat-axis > span')].map((one) => {"
        "  const {left, right, top, bottom} = one.getBoundingClientRect();"
        "  return [one.className || one.tagName, left, right, top, bottom]; })"
        ".filter(([name, left, right]) => right > left && name !== 'heat-axis')"
    )
    over = [
        (a[0], b[0])
        for i, a in enumerate(boxes)
        for b in boxes[:i]
        if a[1] < b[2] - 0.5 and b[1] < a[2] - 0.5 and a[3] < b[4] - 0.5 and b[3] < a[4] - 0.5
    ]
    assert len(boxes) > 15 and over == []


def test_the_report_of_a_training_adds_its_curves_to_a_run(training: Path, tmp_path: Path, open_page: OpenPage) -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    page = open_page(fxdebug.fx_debug(model, torch.ones(1, 4)), reports=[api.watched_training(training)])
    assert page.get_by_role("tab", selected=True).inner_text() == "Graph"
    page.get_by_role("tab", name="Training").click()
    page.locator("figure", has_text="std of results").locator(".curve").nth(5).wait_for(state="attached")
