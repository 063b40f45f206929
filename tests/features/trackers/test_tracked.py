"""MLflow and Weights & Biases have what the run has, under names that lead back to its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.features.trackers import tracked
from fxdebug.features.trackers.tracked import accepted_names, own_name
from support.exported import run
from support.programs import installed

pytestmark = pytest.mark.timeout(600)


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


FILES = ["graph.json", "run.html", "run.md"]


@pytest.mark.parametrize("program", ["mlflow", "wandb"])
@pytest.mark.parametrize(
    ("asked", "logged"),
    [
        ({}, FILES),
        ({"artifacts": None}, FILES),
        ({"artifacts": ""}, []),
        ({"artifacts": []}, []),
        ({"artifacts": "run.md"}, ["run.md"]),
        ({"artifacts": "run.md, graph.json"}, ["graph.json", "run.md"]),
        ({"artifacts": ("run.html",)}, ["run.html"]),
    ],
)
def test_the_artifacts_that_are_asked_for_are_logged(program, asked, logged, tmp_path, monkeypatch):
    files, run_logged = _logged(monkeypatch, program, tmp_path, asked)
    assert sorted(files) == logged and all(size > 100 for size in files.values())
    assert "fxdebug.note" not in run_logged.tags


@pytest.mark.parametrize("program", ["mlflow", "wandb"])
@pytest.mark.parametrize(("asked", "logged"), [({}, []), ({"artifacts": "run.md,run.html"}, ["run.html", "run.md"])])
def test_the_artifacts_of_a_large_run_are_logged_when_asked_for(program, asked, logged, tmp_path, monkeypatch):
    monkeypatch.setattr(tracked, "MOST_NODES", 3)
    files, run_logged = _logged(monkeypatch, program, tmp_path, asked)
    assert sorted(files) == logged
    told = "no artifacts: of a run with more than 3 operations they are logged when asked for"
    assert run_logged.tags.get("fxdebug.note") == (None if asked else told)


@pytest.mark.parametrize("program", ["mlflow", "wandb"])
@pytest.mark.parametrize("asked", ["run.pdf", "run.md,run.pdf", ["run.pdf"]])
def test_an_artifact_that_there_is_not_names_those_there_are(program, asked, tmp_path, monkeypatch):
    with pytest.raises(fxdebug.UsageError, match=r"^artifacts='run\.pdf': a run has run\.html, run\.md, graph\.json$"):
        _logged(monkeypatch, program, tmp_path, {"artifacts": asked})


def _logged(monkeypatch, program, folder, options):
    """Export a run where a program is not installed: return the sizes of the files and the run that it is handed."""
    handed = {}

    def log(run_logged, files, path, given):
        handed["files"] = {file.name: file.stat().st_size for file in files.iterdir()}
        handed["run"] = run_logged

    monkeypatch.setitem(sys.modules, f"fxdebug.features.trackers.{program}_client", SimpleNamespace(log=log))
    run("lstm").export(folder / "logged.db", to=program, **options)
    return handed["files"], handed["run"]
