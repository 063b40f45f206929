"""Each form opened by its own program: what it shows is what the trace has. ``make programs`` runs these tests."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.data.trace import replaced
from fxdebug.exports.registry import EXPORTERS
from fxdebug.features.timelines.timeline import lanes_of_traces
from fxdebug.printable import printable
from support.exported import RUNS, run
from support.programs import (
    asked_of_perfetto,
    chromium,
    drawn_by_mermaid,
    model_explorer,
    open_speedscope,
    opened_by_perfetto,
    with_panes,
)

pytestmark = pytest.mark.timeout(600)


def profiled() -> Trace:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 8))), torch.ones(2, 8)
    return fx_debug(model, x).with_measures(fxdebug.profile(model, x, repeats=2, peak=False))


# Model Explorer ----------------------------------------------------------------------------------


def find_node(page: Any, id: str, label: str) -> Any:
    """Search a node by its id in the left pane, go there and select it; the panel about it."""
    from playwright.sync_api import TimeoutError as TooLate

    panel, search = page.locator("info-panel").first, page.locator("input[placeholder*='Search nodes']").first
    found = page.locator(".search-results-container").get_by_text(label, exact=True).first
    chosen = panel.get_by_text(id, exact=True).first  # hidden, where the text is shown in a form that can be selected
    for _ in range(5):  # a graph that still moves in takes no clicks
        if not chosen.count():
            search.fill("")
            search.fill(id)
            with contextlib.suppress(TooLate):
                found.click(modifiers=["Alt"], timeout=30_000)
        with contextlib.suppress(TooLate):
            chosen.wait_for(state="attached", timeout=30_000)
            return panel
    raise AssertionError(f"{id} was not selected")


def says(panel: Any, *texts: str) -> None:
    """Wait until a panel has these texts: it fills after it opens."""
    for text in texts:
        panel.filter(has_text=text).first.wait_for(state="attached")


def test_model_explorer_opens_layers_and_shows_shapes_statistics_and_overlays(tmp_path):
    trace = profiled()
    folder = trace.export(tmp_path / "explorer", to="model-explorer")
    with model_explorer(folder / "graph.json", [folder / "time.self.json"]) as address, chromium() as page:
        page.goto(with_panes(address, ("Sequential", "Sequential/1/1___group___", "")))
        page.get_by_text("time.self [s]").first.wait_for()
        (value,) = trace["1.1"].outputs
        panel = find_node(page, "1.1#0/linear", "linear")
        says(panel, "Sequential/1/1", "float32[2, 8]", str(value.stats.mean), "verified")
        says(panel, str(trace.numbers("time.self")["1.1#0/linear"]))


@pytest.mark.parametrize("name", RUNS)
def test_model_explorer_has_as_many_nodes_and_layers_as_the_file(tmp_path, name):
    trace = run(name)
    path = trace.export(tmp_path / "run.json", to="model-explorer")
    (graph,) = json.loads(path.read_text())["graphs"]
    with model_explorer(path) as address, chromium() as page:
        page.goto(address)
        page.get_by_text("op node count").wait_for()
        count = rf"op node count\s*{len(graph['nodes'])}(?!\d)"
        shown = "document.querySelector('info-panel')?.innerText"
        page.wait_for_function(f"count => RegExp(count).test({shown})", arg=count)


def test_model_explorer_shows_two_runs_with_their_error_and_goes_from_one_to_the_other(tmp_path):
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 8)), nn.Tanh())
    b = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 8)), nn.Tanh())
    b.load_state_dict(a.state_dict())
    x = torch.randn(2, 8)
    comparison = fxdebug.compare(fx_debug(a, x), fx_debug(b, x))
    folder = comparison.export(tmp_path / "compared", to="model-explorer")
    overlays = [folder / "error.json", folder / "verdict.json"]
    with model_explorer(folder / "graph.json", overlays) as address, chromium(1600, 1000) as page:
        layer = "Sequential/1/1___group___"
        page.goto(with_panes(address, ("a: Sequential", layer, ""), ("b: Sequential", layer, "")))
        page.get_by_text("Sync", exact=True).click()
        page.get_by_text("Upload mapping from computer").click()
        page.set_input_files("input[type=file][accept='.json']", str(folder / "mapping.json"))
        page.get_by_text("mapping.json").wait_for()
        page.keyboard.press("Escape")
        panel = find_node(page, "1.1#0/linear", "linear")
        row = next(row for row in comparison.rows if row.a is not None and row.a.node == "1.1#0/linear")
        says(panel, f"{row.error}", "inherited")
        page.wait_for_function("() => document.querySelectorAll('info-panel').length === 2")


# Pages -------------------------------------------------------------------------------------------


def test_mermaid_draws_every_run_within_its_default_limits(tmp_path):
    with chromium() as page:
        for name in RUNS:
            svg = drawn_by_mermaid(page, run(name).export(tmp_path / "run.mmd").read_text())
            assert "Syntax error" not in svg and svg.startswith("<svg"), name
        shown = page.evaluate("() => document.body.innerText")
        assert "</script><!--" in shown  # hostile is the last: as text


def test_speedscope_shows_the_calls_of_a_run(tmp_path):
    trace = run("gpt2")
    path = trace.export(tmp_path / "run.speedscope.json")
    with chromium() as page:
        open_speedscope(page, path)
        page.get_by_text("Sandwich").wait_for()
        page.get_by_text("Sandwich").click()
        page.get_by_text("wte", exact=True).first.wait_for()
        page.wait_for_function("() => document.body.innerText.includes('GPT2Model')")


# Perfetto ----------------------------------------------------------------------------------------

SLICES = """
    select process.name as process, thread.name as thread, slice.name, slice.ts, slice.dur, slice.depth,
        around.name as around
    from slice join thread_track on slice.track_id = thread_track.id
    join thread using (utid) join process using (upid)
    left join slice as around on slice.parent_id = around.id order by slice.id
"""
FLOWS = "select a.name as a, b.name as b from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"
COUNTERS = "select t.name, value from counter join process_counter_track t on track_id = t.id order by counter.id"
BROKEN = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.mark.parametrize("ranks", [[None], [0, 1]])
def test_perfetto_answers_what_ran_where_and_how_long(tmp_path, ranks):
    first = profiled()
    traces = [replaced(first, settings={**first.settings, "rank": rank}) for rank in ranks]
    path = traces[0].export(tmp_path / "run.pftrace", ranks=traces[1:])
    with chromium() as page, opened_by_perfetto(page, path):
        slices, flows, counters, broken = (asked_of_perfetto(page, sql) for sql in (SLICES, FLOWS, COUNTERS, BROKEN))
    lanes = lanes_of_traces(traces)
    assert broken == []
    assert sorted(row[:6] for row in slices) == sorted(
        (lane.name, "calls", one.name, one.begin, one.end - one.begin, one.depth)
        for lane in lanes
        for one in lane.slices
    )
    assert {around for *_, name, _, _, _, around in slices if name == "linear"} == {"0", "1.1"}
    assert sorted(flows) == sorted((lane.slices[a].name, lane.slices[b].name) for lane in lanes for a, b in lane.flows)
    assert counters == [(f"{one.name}", number) for lane in lanes for one in lane.counters for _, number in one.points]


@pytest.mark.parametrize("name", RUNS)
def test_perfetto_reads_every_call_of_every_run(tmp_path, name):
    trace = run(name)
    with chromium() as page, opened_by_perfetto(page, trace.export(tmp_path / "run.pftrace")):
        facts = (
            "extract_arg(arg_set_id, 'debug.call') as call, extract_arg(arg_set_id, 'debug.duration, s') as duration"
        )
        found = asked_of_perfetto(page, f"select depth, {facts} from slice order by id")
    assert found == [(call.depth, printable(call.id), call.duration) for call in trace.calls]


# Nothing of the model changes --------------------------------------------------------------------


@pytest.mark.parametrize("form", sorted(form for kind, form in EXPORTERS if kind == "trace"))
def test_an_export_leaves_the_model_as_it_is(tmp_path, form):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train()
    model[1].eval()
    model[0].register_forward_hook(lambda *_: None)
    trace = fx_debug(model, torch.ones(1, 4))
    before = [(module.training, dict(module._forward_hooks)) for module in model.modules()]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        trace.export(tmp_path / "run", to=form)
    except fxdebug.errors.MissingExtra as error:
        pytest.skip(str(error))
    assert [(module.training, dict(module._forward_hooks)) for module in model.modules()] == before
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
