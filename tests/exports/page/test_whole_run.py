"""A page has everything that a run has: whole payloads of small models, compared with the trace."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.apps.cli.main import main
from fxdebug.data.findings import Finding
from fxdebug.data.report import ReportData
from fxdebug.data.values import shape_text
from support.page_data import RunOfPage, data_in

_TIMES = ("duration", "finished")


class Small(nn.Module):
    """Repeats, a NaN, a module that is never called, a buffer, tied weights, an argument that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU())
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.layers[0].weight
        self.spare = nn.Linear(1, 1)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Tensor, power: int = 2) -> dict[str, Tensor]:
        y = self.layers(x) * self.scale
        return {"y": y**power, "log": (y - y.max() - 1).log()}


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(0)
    return fx_debug(Small(), torch.ones(2, 3), {"power": 3})


@pytest.fixture(scope="module")
def run(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> RunOfPage:
    return RunOfPage(data_in(trace.export(tmp_path_factory.mktemp("page") / "small.html")))


def without_times(node: Any) -> Any:
    """Leave out what differs from one run, or from one machine, to the next."""
    if isinstance(node, dict):
        left_out = (*_TIMES, "started", "made", "versions", "version", "settings", "folder")
        return {key: without_times(inner) for key, inner in node.items() if key not in left_out}
    if isinstance(node, list):
        return [without_times(inner) for inner in node]
    if isinstance(node, str):
        return re.sub(r"container\.py:\d+", "container.py", node.rpartition("/")[2]) if ".py:" in node else node
    if isinstance(node, float):
        return "NaN" if math.isnan(node) else float(f"{node:.3g}")
    return node


def test_the_whole_data_of_a_small_run(trace: Trace, tmp_path: Path, golden: Any) -> None:
    data = without_times(data_in(trace.export(tmp_path / "small.html")))
    run = data["runs"][0]
    run["measures"] = [one for one in run["measures"] if one["name"] in ("params", "flops")]
    lines = [f"{json.dumps(key)}: {json.dumps(run[key], ensure_ascii=False)}" for key in run]
    golden("page_small.txt", "\n".join([json.dumps(data["texts"], ensure_ascii=False), *lines]) + "\n")


def test_the_calls_are_those_of_the_trace(trace: Trace, run: RunOfPage) -> None:
    calls = run.data["calls"]
    assert run.calls("path") == [call.path for call in trace.calls]
    assert run.calls("type") == [call.type for call in trace.calls]
    assert calls["parent"] == [-1 if call.parent is None else call.parent.index for call in trace.calls]
    statuses = ["", "verified", "recorded", "opaque"]
    assert [statuses[one] for one in calls["status"]] == [call.status for call in trace.calls]
    assert run.data["neverCalled"] == [["tied", "Linear", 0], ["spare", "Linear", 0]]
    assert dict(map(tuple, run.data["lines"])) == trace.named_lines()


def test_the_values_have_the_statistics_of_the_trace(trace: Trace, run: RunOfPage) -> None:
    values = run.data["values"]
    assert [run.text(one) for one in values["shape"]] == [shape_text(value.shape) for value in trace.values]
    for name in ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros"):
        expected = [math.nan if v.stats is None else v.stats.__getattribute__(name) for v in trace.values]
        expected = [math.nan if one is None else float(one) for one in expected]
        assert np.allclose(values["statistics"][name], expected, rtol=1e-6, equal_nan=True), name


def test_the_steps_have_the_values_and_lines_of_the_graphs(trace: Trace, run: RunOfPage) -> None:
    calls, steps = run.data["calls"], run.data["steps"]
    for node in (node for node in trace.ops() if node.value is not None):
        first, graph = calls["firstStep"][node.call.index], calls["graph"][node.call.index]
        names = [run.text(one) for one in steps["name"][steps["first"][graph] : steps["first"][graph + 1]]]
        step = first + names.index(node.id.rpartition("/")[2])
        assert steps["value"][step] == node.value.number and run.text(steps["source"][step]) == (node.source or "")


def test_arguments_that_are_no_tensors_are_there_as_text(run: RunOfPage) -> None:
    ports, calls = run.data["ports"], run.data["calls"]
    own = range(calls["firstPort"][0], calls["firstPort"][1])
    listed = [
        (ports["kind"][i], run.text(ports["slot"][i]), ports["value"][i] >= 0, run.text(ports["text"][i])) for i in own
    ]
    assert listed == [(0, "args[0]", True, ""), (0, "power", False, "3"), (1, "y", True, ""), (1, "log", True, "")]


def test_measures_and_findings_stand_at_their_calls_and_steps(trace: Trace, run: RunOfPage) -> None:
    (finding,) = [one for one in run.data["findings"] if one["rule"] == "nan"]
    (expected,) = [one for one in trace.check() if one.rule == "nan"]
    assert (finding["call"], finding["severity"]) == (0, expected.severity) and finding["what"] == expected.what
    assert finding["step"] >= 0 and not finding["others"]
    flops = next(one for one in run.data["measures"] if one["name"] == "flops")
    numbers = trace.numbers("flops")
    assert [numbers.get(call.id if call.path else f"{trace.model}#0") for call in trace.calls] == [
        None if math.isnan(one) else one for one in flops["calls"]
    ]
    of_steps = [number for id, number in numbers.items() if "/" in id]
    assert sorted(flops["steps"]["number"]) == sorted(of_steps)


def test_parameters_have_all_their_names(trace: Trace, run: RunOfPage) -> None:
    assert run.data["parameters"]["names"] == [list(one.names) for one in trace.parameters]
    assert ["layers.0.weight", "tied.weight"] in run.data["parameters"]["names"]
    assert run.data["parameters"]["kind"].count(1) == 1


def test_a_loaded_run_has_the_same_page(trace: Trace, tmp_path: Path) -> None:
    loaded = fxdebug.load(trace.save(tmp_path / "run"))
    one, other = data_in(trace.export(tmp_path / "a.html")), data_in(loaded.export(tmp_path / "b.html"))
    one["runs"][0]["folder"] = other["runs"][0]["folder"]
    assert repr(one) == repr(other)


def test_without_a_check_there_are_no_findings(trace: Trace, tmp_path: Path) -> None:
    assert data_in(trace.export(tmp_path / "a.html", check=False))["runs"][0]["findings"] == []


def test_findings_of_reports_stand_among_those_of_the_run_the_worst_first(trace: Trace, tmp_path: Path) -> None:
    told = [("advice", "0.1 of the weights"), ("error", "step 3: the loss rises"), ("error", "step 3: the loss rises")]
    findings = tuple([Finding("told", grave, "", f"{trace.model}#0", "loss", what) for grave, what in told])
    page = trace.export(
        tmp_path / "a.html", check=False, reports=[ReportData("watch", trace.model, (), findings=findings)]
    )
    found = data_in(page)["runs"][0]["findings"]
    assert [(one["severity"], one["what"], one["call"], one["analysis"]) for one in found] == [
        ("error", "step 3: the loss rises", 0, "watch"), ("advice", "0.1 of the weights", 0, "watch"),
    ]  # fmt: skip


# Reports and tensors -----------------------------------------------------------------------------


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


def test_a_run_that_kept_its_tensors_has_histograms_and_attention_maps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trace = fx_debug(Attending(), torch.randn(1, 5, 8), values="tensors")
    run = data_in(trace.export(tmp_path / "a.html"))["runs"][0]
    number = trace.root.outputs[0].number
    at = run["histograms"]["value"].index(number)
    begin, end = run["histograms"]["first"][at : at + 2]
    counts, edges = np.histogram(trace.tensor(trace.root.outputs[0]).numpy(), bins=32)
    assert run["histograms"]["counts"][begin:end] == counts.tolist()
    assert np.allclose(run["histograms"]["edges"][begin + at : end + at + 1], edges, atol=1e-6)
    (one,) = run["attention"]
    report = fxdebug.attention(trace)
    assert (one["shape"], trace.calls[one["call"]].path) == ([1, 2, 5, 5], "attention")
    shown = np.array(one["weights"]).reshape(one["shape"]) / one["steps"]
    assert np.allclose(shown, report.map("attention").weights, atol=1 / one["steps"])


def test_reports_add_times_memory_tables_and_measures(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
    reports = [
        fxdebug.profile(model, x, repeats=2, peak=False),
        fxdebug.memory(model, x),
        fxdebug.activations(model, x),
    ]
    run = data_in(fx_debug(model, x).export(tmp_path / "a.html", reports=reports))["runs"][0]
    assert run["spans"]["call"] == [0, 1, 2] and run["spans"]["depth"] == [0, 1, 1]
    assert all(end >= begin for begin, end in zip(run["spans"]["begin"], run["spans"]["end"]))
    (memory,) = run["timelines"]
    assert {one["name"] for one in memory["series"]} <= {*reports[1].series} and memory["series"][0]["unit"] == "B"
    assert [page["analysis"] for page in run["reports"]] == ["profile", "memory", "activations"]
    assert [histogram["id"] for histogram in run["reports"][2]["histograms"]] == list(reports[2].histograms)
    assert {"time.self", "memory.peak"} <= {one["name"] for one in run["measures"]}


def test_a_report_of_another_model_is_refused(tmp_path: Path) -> None:
    report = fxdebug.flops(nn.Tanh(), torch.ones(2))
    with pytest.raises(fxdebug.errors.UsageError, match="Tanh"):
        fx_debug(nn.ReLU(), torch.ones(2)).export(tmp_path / "a.html", reports=[report])


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """A run with a NaN, larger than what a page checks by itself."""
    trace = fx_debug(Small(), torch.randn(4, 3))
    monkeypatch.setattr("fxdebug.exports.page.run.CHECKED", 10)
    return trace


@pytest.mark.parametrize("check, is_checked", [(None, False), (True, True), (False, False)])
def test_the_page_of_a_large_run_has_findings_where_they_are_asked_for_and_a_note_where_it_left_them_out(
    large: Trace, tmp_path: Path, check: bool | None, is_checked: bool
) -> None:
    options = {} if check is None else {"check": check}
    data = data_in(large.export(tmp_path / "run.html", **options))["runs"][0]
    first = data["notes"][0]["what"] if data["notes"] else ""
    assert bool(data["findings"]) == is_checked
    assert first.startswith("findings were not looked for: the graphs have ") == (check is None)


def test_a_run_that_is_too_large_for_a_page_is_refused_at_once_with_what_to_do(
    large: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fxdebug.exports.page.run.LARGEST", 12)
    monkeypatch.setattr("fxdebug.exports.page.run.bodies_of", None)  # no work is done before
    saved = large.save(tmp_path / "saved")
    assert main(["page", str(saved), "-o", str(tmp_path / "run.html")]) == 2
    refusal = capsys.readouterr().err
    assert re.search(r"Small: a page of a run whose graphs have \d+ nodes would take minutes, and 12 is", refusal)
    assert not (tmp_path / "run.html").exists()
    alone = fx_debug(Small(), torch.randn(4, 3), graph=False)  # the remedies that it names
    assert large.text(depth=2)
    assert large.find(type=nn.Linear) and not large.check().healthy
    monkeypatch.undo()
    assert alone.export(tmp_path / "calls.html").exists()
