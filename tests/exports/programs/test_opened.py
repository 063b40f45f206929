"""Each form opened by its own program: what it shows is what the trace has. ``make programs`` runs these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.exports.trackers.tracked import accepted_names, own_name
from support.exported import RUNS, run
from support.programs import chromium, drawn_by_mermaid, installed, model_explorer, open_speedscope, with_panes

pytestmark = pytest.mark.timeout(600)


def profiled() -> Trace:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 8))), torch.ones(2, 8)
    return fx_debug(model, x).with_measures(fxdebug.profile(model, x, repeats=2, peak=False))


# Model Explorer ----------------------------------------------------------------------------------


def find_node(page: Any, id: str, label: str) -> Any:
    """Search a node by its id in the left pane, go there and select it; the panel about it."""
    page.locator("input[placeholder*='Search nodes']").first.fill(id)
    page.locator(".search-results-container").get_by_text(label, exact=True).first.click(modifiers=["Alt"])
    panel = page.locator("info-panel").first
    panel.get_by_text(id, exact=True).filter(visible=True).first.wait_for()  # it has hidden twins, to be measured
    return panel


def test_model_explorer_opens_layers_and_shows_shapes_statistics_and_overlays(tmp_path):
    trace = profiled()
    folder = trace.export(tmp_path / "explorer", to="model-explorer")
    with model_explorer(folder / "graph.json", [folder / "time.self.json"]) as address, chromium() as page:
        page.goto(with_panes(address, ("Sequential", "Sequential/1/1___group___", "")))
        page.get_by_text("time.self [s]").first.wait_for()
        text = find_node(page, "1.1#0/linear", "linear").inner_text()
    (value,) = trace["1.1"].outputs
    for said in ("Sequential/1/1", "float32[2, 8]", str(value.stats.mean), "verified"):
        assert said in text, said
    assert str(trace.numbers("time.self")["1.1#0/linear"]) in text


@pytest.mark.parametrize("name", RUNS)
def test_model_explorer_has_as_many_nodes_and_layers_as_the_file(tmp_path, name):
    trace = run(name)
    path = trace.export(tmp_path / "run.json", to="model-explorer")
    (graph,) = json.loads(path.read_text())["graphs"]
    with model_explorer(path) as address, chromium() as page:
        page.goto(address)
        page.get_by_text("op node count").wait_for()
        text = page.locator("info-panel").first.inner_text()
    assert f"op node count\n\t\n{len(graph['nodes'])}\n" in text.replace("\r", "")


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
        text = find_node(page, "1.1#0/linear", "linear").inner_text()
        assert page.locator("info-panel").count() == 2
    row = next(row for row in comparison.rows if row.a is not None and row.a.node == "1.1#0/linear")
    assert f"{row.error}" in text and "inherited" in text


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
        shown = page.evaluate("() => document.body.innerText")
    assert "GPT2Model" in shown


# Trackers ----------------------------------------------------------------------------------------


def test_mlflow_reads_metrics_parameters_and_files_back(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: make programs")
    for name in ("gpt2", "hostile", "crashed"):
        run(name).export(tmp_path / "mlflow.db", to="mlflow", experiment="runs", step=7)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("runs")
    runs = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"GPT2Model", "Does", "Sequential"}
    assert runs["Sequential"].info.status == "FAILED" and "mat1" in runs["Sequential"].data.tags["fxdebug.raised"]
    assert runs["GPT2Model"].data.params["version.torch"] == run("gpt2").versions["torch"]
    for trace, logged in ((run("gpt2"), runs["GPT2Model"]), (run("hostile"), runs["Does"])):
        folder = Path(client.download_artifacts(logged.info.run_id, ".", str(tmp_path)))
        long = json.loads((folder / "names.json").read_text())
        metrics = {long.get(name, name): number for name, number in logged.data.metrics.items()}
        for measure in ("params", "absmax", "flops"):
            known = {f"{measure}/{id}": one for id, one in trace.numbers(measure).items()}
            logged_ones = {name: one for name, one in metrics.items() if name.startswith(f"{measure}/")}
            assert logged_ones and logged_ones.items() <= known.items()
        assert {path.name for path in folder.iterdir()} >= {"run.html", "run.md", "graph.json", "names.json"}
    (history,) = client.get_metric_history(runs["GPT2Model"].info.run_id, "duration")
    assert history.step == 7 and history.value == run("gpt2").duration


def test_wandb_writes_a_run_without_a_network(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed: make programs")
    trace = run("gpt2")
    folder = trace.export(tmp_path / "logged", to="wandb", step=3)
    (file,) = folder.rglob("run-*.wandb")
    data = file.read_bytes()
    number = trace.numbers("absmax")["h.0.attn#0"]
    for said in ("params/GPT2Model#0", "absmax/h.0.attn#0", str(number), "version.torch", "run.html"):
        assert said.encode() in data, said
    assert "memory.peak" not in str(data)  # it was not measured


def test_a_report_is_logged_with_its_series_over_steps(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: make programs")
    report = fxdebug.memory(nn.Linear(4, 4), torch.ones(1, 4))
    report.export(tmp_path / "mlflow.db", to="mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    (logged,) = client.search_runs([client.get_experiment_by_name("fxdebug").experiment_id])
    history = client.get_metric_history(logged.info.run_id, "parameters")
    assert [one.value for one in sorted(history, key=lambda one: one.step)] == list(report.series["parameters"])
    assert logged.data.metrics["total/peak"] == report.totals["peak"][0]


def test_a_missing_library_is_an_error_that_names_the_extra(tmp_path):
    try:
        import mlflow  # noqa: F401
    except ImportError:
        with pytest.raises(fxdebug.errors.MissingExtra, match=r"pip install 'fxdebug\[mlflow\]'"):
            run("lstm").export(tmp_path / "x.db", to="mlflow")
    else:
        assert installed("bin")


@pytest.mark.parametrize("name", ["h.0.attn#0", "a_23_b#1", "ü/<x>", "a-2d-b", "time.self/h.0#12"])
def test_accepted_names_lead_back_to_their_own(name):
    allowed = r"[A-Za-z0-9_/. \-]"
    accepted = accepted_names([name], allowed)[name]
    assert own_name(accepted) == name
    assert all(c.isascii() and (c.isalnum() or c in "_/. -") for c in accepted)


def test_names_that_are_too_long_stay_different():
    long = accepted_names(["x" * 300 + "a", "x" * 300 + "b"], r"[a-z_0-9]")
    assert len(set(long.values())) == 2 and max(map(len, long.values())) <= 250


# Nothing of the model changes --------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [".gexf", ".md", ".mmd", "model-explorer", ".pftrace", ".trace.json", ".speedscope.json"]
)
def test_an_export_leaves_the_model_as_it_is(tmp_path, form):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train()
    model[1].eval()
    model[0].register_forward_hook(lambda *_: None)
    trace = fx_debug(model, torch.ones(1, 4))
    before = [(module.training, dict(module._forward_hooks)) for module in model.modules()]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trace.export(tmp_path / "run", to=form)
    assert [(module.training, dict(module._forward_hooks)) for module in model.modules()] == before
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
