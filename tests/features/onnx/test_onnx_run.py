"""A run as ONNX says what the run says, whatever the run is, and Netron opens every layer of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.errors import UsageError
from fxdebug.features.onnx import run as onnx_run
from fxdebug.features.shared.programs.facts import shortened
from fxdebug.query.network import network_of
from support.browser import choose, drill, opened, require_browser, served
from support.exported_models import RUNS, as_it_was, built, run_of

onnx = pytest.importorskip("onnx", reason="onnx is not installed: fxdebug[onnx]")


def written(trace: Trace, folder: Path, **options: Any) -> Any:
    path = trace.export(folder / "run.onnx", **options)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    return model


def graphs_of(model: Any) -> list[Any]:
    return [model.graph, *model.functions]


def nodes_of(model: Any) -> Iterator[Any]:
    for graph in graphs_of(model):
        yield from (node for node in graph.node if node.op_type not in ("input", "output"))


def metadata(owner: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in owner.metadata_props}


@pytest.mark.parametrize("name", RUNS)
def test_every_operation_and_call_is_a_node_with_the_numbers_of_the_trace(name, tmp_path):
    trace = run_of(name)
    model = written(trace, tmp_path)
    known = network_of(trace).nodes
    expected = {id for id, node in known.items() if node.kind not in ("placeholder", "output")}
    root = next(reversed(known))
    found = {metadata(node)["id"]: node for node in nodes_of(model)}
    printable = {shortened(id, 100_000): id for id in expected}
    assert set(found) == set(printable) - {shortened(root, 100_000)}
    for text, node in found.items():
        stats, facts = known[printable[text]].stats, metadata(node)
        if stats is not None and stats.mean is not None:
            assert facts["mean"] == str(stats.mean) and facts["absmax"] == str(stats.absmax)


@pytest.mark.parametrize("name", RUNS)
def test_shapes_stand_at_the_values_of_every_layer(name, tmp_path):
    trace = run_of(name)
    model = written(trace, tmp_path)
    known = network_of(trace).nodes
    ids = {shortened(id, 100_000): id for id in known}
    checked = 0
    for graph in graphs_of(model):
        infos = [*graph.value_info, *(graph.output if graph is model.graph else ())]
        shapes = {one.name: tuple(d.dim_value for d in one.type.tensor_type.shape.dim) for one in infos}
        for node in graph.node:
            id = ids.get(metadata(node).get("id", ""))
            for output, value in zip(node.output, known[id].values if id else ()):
                assert shapes[output] == value.shape
                checked += 1
    assert checked >= len(trace.calls) - 3


def test_what_one_layer_returns_is_what_the_next_one_takes(tmp_path):
    model = written(fx_debug(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Identity()), torch.ones(1, 4)), tmp_path)
    assert [(node.op_type, list(node.input), list(node.output)) for node in model.graph.node] == [
        ("Linear", ["input_1"], ["0"]), ("ReLU", ["0"], ["1"]), ("Identity", ["1"], ["2"]),
    ]  # fmt: skip
    assert [output.name for output in model.graph.output] == ["2"]
    inside = {function.name: function for function in model.functions}
    assert [(node.op_type, list(node.input)) for node in inside["Linear"].node] == [
        ("get_attr", []), ("get_attr", []), ("linear", ["input_1", "weight", "bias"]),
    ]  # fmt: skip
    assert [node.op_type for node in inside["Identity"].node] == ["output"]


def test_calls_of_one_module_are_functions_of_their_own(tmp_path):
    model = written(run_of("lstm"), tmp_path)
    cells = [function.overload for function in model.functions if function.name == "LSTMCell"]
    assert sorted(cells) == ["cell#0", "cell#1", "cell#2"]


def test_measures_that_were_asked_for_are_in_the_nodes(tmp_path):
    net, x = nn.Sequential(nn.Linear(4, 3)), torch.ones(1, 4)
    timed = fx_debug(net, x).with_measures(fxdebug.profile(net, x, repeats=2, peak=False))
    facts = metadata(written(timed, tmp_path).graph.node[0])
    assert float(facts["time.self"]) == timed.numbers("time.self")["0#0"] and "flops" not in facts
    facts = metadata(written(timed, tmp_path, measures="flops").graph.node[0])
    assert float(facts["flops"]) == 24


def test_a_run_that_raised_says_so(tmp_path):
    model = written(run_of("crashed"), tmp_path)
    assert metadata(model)["error"].startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert {metadata(node)["id"] for node in nodes_of(model) if "error" in metadata(node)} == {"1#0", "1.0#0"}


def test_calls_nested_deeper_than_onnx_allows_are_closed(tmp_path):
    net: nn.Module = nn.ReLU()
    for _ in range(120):
        net = nn.Sequential(net)
    closed = [metadata(node)["closed"] for node in nodes_of(written(fx_debug(net, torch.ones(1)), tmp_path))
              if "closed" in metadata(node)]  # fmt: skip
    assert closed == ["1 calls inside"]


def test_calls_below_a_depth_are_closed(tmp_path):
    model = written(run_of("gpt2"), tmp_path, depth=2)
    assert {function.name for function in model.functions} == {"GPT2Model", "Linear"}


class Long(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            x = x + 1
        return x


def test_more_operations_in_one_module_than_netron_shows_are_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_run, "MOST", 20)
    trace = fx_debug(Long(), torch.ones(1))
    with pytest.raises(UsageError, match=r"Long runs 32 .*Netron hangs above 20 .*to='tensorboard'.*whole=True"):
        trace.export(tmp_path / "run.onnx")
    assert len(written(trace, tmp_path, whole=True).graph.node) == 30


def test_exporting_a_live_run_leaves_the_model_alone(tmp_path):
    model, inputs = built("gpt2")
    before = as_it_was(model)
    written(fx_debug(model, inputs), tmp_path)
    assert as_it_was(model) == before


def test_netron_opens_a_layer_and_shows_shapes_and_statistics(tmp_path):
    require_browser()
    trace = run_of("gpt2")
    path = trace.export(tmp_path / "run.onnx")
    with served("netron", path) as address, opened(address) as page:
        drill(page, "transformer#0")
        page.wait_for_selector('g.node[id="node-name-transformer.h.5#0"]', state="attached")
        drill(page, "transformer.h.5#0")
        page.locator("#edge-labels", has_text="2×6×32").wait_for(state="attached")
        stats = trace["transformer.h.5.attn"].outputs[0].stats
        choose(page, "transformer.h.5.attn#0", str(stats.mean))


@pytest.mark.parametrize("name", ["hostile", "crashed"])
def test_netron_opens_runs_that_are_not_as_runs_are(name, tmp_path):
    require_browser()
    path = run_of(name).export(tmp_path / "run.onnx")
    with served("netron", path) as address, opened(address) as page:
        page.locator("g.node", has_text="Linear").first.wait_for(state="attached")


class GivesWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.hyper = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), nn.Linear(2, 32)

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> Any:
        return functional_call(self.net, {"0.weight": self.hyper(z).view(8, 4)}, (x,))


def test_a_weight_that_is_given_for_one_call_enters_the_functions_that_use_it(tmp_path):
    model = written(fx_debug(GivesWeights(), (torch.randn(5, 4), torch.randn(2))), tmp_path)
    (net,) = [node for node in model.graph.node if node.op_type == "Sequential"]
    assert list(net.input) == ["x", "view"]
    functions = {function.overload: function for function in model.functions}
    assert len(functions["net#0"].input) == len(functions["net.0#0"].input) == 2
    assert functions["net#0"].input[1] in functions["net#0"].node[0].input
    reads = [node for node in functions["net.0#0"].node if node.op_type == "get_attr" and node.input]
    assert [list(node.input) for node in reads] == [[functions["net.0#0"].input[1]]]


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.one, self.two = nn.Linear(4, 4), nn.Identity(), nn.Dropout()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.trunk(x)
        return x, self.one(x), self.two(x)


def test_branches_that_return_one_tensor_stay_side_by_side(tmp_path):
    trace = fx_debug(Branches().eval(), torch.randn(2, 4))
    for options in ({}, {"depth": 1}):
        model = written(trace, tmp_path, **options)
        assert [(list(node.input), list(node.output)) for node in model.graph.node] == [
            (["x"], ["trunk"]), (["trunk"], ["one"]), (["trunk"], ["two"]),
        ]  # fmt: skip
        assert [output.name for output in model.graph.output] == ["trunk", "one", "two"]
