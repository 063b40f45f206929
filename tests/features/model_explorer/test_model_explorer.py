"""A run as Model Explorer reads it: layers for calls, arrows between operations, overlays, pairs of a comparison."""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.query.network import network_of
from support.counted import calls_of
from support.exported import RUNS, run

COMPUTES = ("call_function", "call_method")


def graph_of(trace: Trace, folder: Path) -> dict:
    (graph,) = json.loads(trace.export(folder / "run.json", to="model-explorer").read_text())["graphs"]
    return graph


def attributes(pairs: list[dict[str, str]]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in pairs}


@pytest.mark.parametrize("name", RUNS)
def test_every_operation_of_a_run_is_a_node_with_its_shape_and_its_statistics(tmp_path, name):
    trace = run(name)
    graph = graph_of(trace, tmp_path)
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"]) and "" not in nodes
    operations = [node for node in network_of(trace).nodes.values() if node.kind in COMPUTES]
    if name != "hostile":  # whose ids are not printable
        assert {node.id for node in operations} <= nodes.keys()
    assert Counter(attributes(node["attrs"])["kind"] for node in nodes.values())["call_function"] == sum(
        node.kind == "call_function" for node in operations
    )
    for node in operations:
        if node.value is not None and node.id in nodes:
            facts = attributes(nodes[node.id]["outputsMetadata"][0]["attrs"])
            assert facts["tensor_shape"] == node.value.label
            if node.stats is not None and node.stats.mean is not None:
                assert complex(facts["mean"]) == node.stats.mean


@pytest.mark.parametrize("name", RUNS)
def test_arrows_lead_from_nodes_to_nodes_and_layers_are_the_calls(tmp_path, name):
    trace = run(name)
    graph = graph_of(trace, tmp_path)
    ids = {node["id"] for node in graph["nodes"]}
    for node in graph["nodes"]:
        sources = [edge["sourceNodeId"] for edge in node.get("incomingEdges", ())]
        assert set(sources) <= ids - {node["id"]}
        assert [edge["targetNodeInputId"] for edge in node.get("incomingEdges", ())] == [
            str(place) for place in range(len(sources))
        ]
    layers = graph["groupNodeAttributes"]
    assert len(layers) == len(trace.calls) + 1  # and one for the whole
    assert {node["namespace"] for node in graph["nodes"]} <= layers.keys()


def test_a_value_goes_straight_from_the_operation_that_made_it(tmp_path):
    torch.manual_seed(0)
    trace = fx_debug(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Tanh())), torch.ones(1, 2))
    nodes = {node["id"]: node for node in graph_of(trace, tmp_path)["nodes"]}
    into = {id: [edge["sourceNodeId"] for edge in node.get("incomingEdges", ())] for id, node in nodes.items()}
    assert into == {
        "Sequential#0/input_1": [],
        "0#0/weight": [],
        "0#0/bias": [],
        "0#0/linear": ["Sequential#0/input_1", "0#0/weight", "0#0/bias"],
        "1.0#0/relu": ["0#0/linear"],
        "1.1#0/tanh": ["1.0#0/relu"],
        "Sequential#0/output": ["1.1#0/tanh"],
    }
    assert {id: node["namespace"] for id, node in nodes.items()}["1.1#0/tanh"] == "Sequential/1/1"


def test_overlays_have_the_numbers_of_the_measures_and_of_nothing_else(tmp_path):
    trace = run("gpt2")
    profile = fxdebug.profile(*timed(), repeats=2, peak=False)
    trace = fx_debug(*timed()).with_measures(profile)
    folder = trace.export(tmp_path / "explorer", to="model-explorer")
    names = {path.stem for path in folder.iterdir()}
    assert {"graph", "time.self", "flops", "absmax", "status"} <= names
    assert "nan" not in names and "memory.peak" not in names  # there are none; it was not measured
    overlay = json.loads((folder / "time.self.json").read_text())["Sequential"]
    assert overlay["name"] == "time.self [s]"
    ids = {"Sequential#0": "Sequential___group___", "0#0": "Sequential/0___group___"}
    for id, number in trace.numbers("time.self").items():
        known = ids.get(id, id)
        if known in overlay["results"]:
            assert overlay["results"][known] == {"value": number}
    assert overlay["results"]["0#0/linear"]["value"] == trace.numbers("time.self")["0#0/linear"]


def timed() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.ones(2, 8)


def test_a_call_that_raised_is_red_and_says_what_it_raised(tmp_path):
    trace = run("crashed")
    graph = graph_of(trace, tmp_path)
    assert "mat1 and mat2" in graph["groupNodeAttributes"][""]["raised"]
    failed = [node for node in graph["nodes"] if "style" in node]
    errors = [layer["error"] for layer in graph["groupNodeAttributes"].values() if "error" in layer]
    assert len(failed) == 1 or len(errors) == 3


def compared() -> fxdebug.Comparison:
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 8)), nn.Tanh())
    b = copy.deepcopy(a)
    b[1][0] = nn.ReLU()
    x = torch.randn(2, 8)
    return fxdebug.compare(fx_debug(a, x), fx_debug(b, x))


def test_a_comparison_has_both_graphs_the_pairs_and_the_errors(tmp_path):
    comparison = compared()
    folder = comparison.export(tmp_path / "compared", to="model-explorer")
    assert {path.name for path in folder.iterdir()} == {"graph.json", "mapping.json", "error.json", "verdict.json"}
    graphs = {graph["id"]: graph for graph in json.loads((folder / "graph.json").read_text())["graphs"]}
    assert list(graphs) == ["a: Sequential", "b: Sequential"]
    mapping = json.loads((folder / "mapping.json").read_text())
    pairs = [(entry["leftNodeIds"], entry["rightNodeIds"]) for entry in mapping["mappingEntries"]]
    left, right = [id for ids, _ in pairs for id in ids], [id for _, ids in pairs for id in ids]
    assert len(set(left)) == len(left) and len(set(right)) == len(right)  # the program reads each id once
    known = [{node["id"] for node in graph["nodes"]} for graph in graphs.values()]
    for ids, nodes in ((left, known[0]), (right, known[1])):
        assert {id for id in ids if "___group___" not in id} <= nodes
    assert (["1.1#0/linear"], ["1.1#0/linear"]) in pairs
    assert (["1.1#0/weight"], ["1.1#0/weight"]) in pairs  # not compared, and a pair all the same
    errors = json.loads((folder / "error.json").read_text())["b: Sequential"]["results"]
    rows = {row.b.node: row for row in comparison.rows if row.b is not None and row.certain and row.measured}
    assert errors["2#0/tanh"]["value"] == rows["2#0/tanh"].error > 0
    assert errors["0#0/linear"]["value"] == 0
    verdicts = json.loads((folder / "verdict.json").read_text())["b: Sequential"]["results"]
    assert verdicts["0#0/linear"]["value"] == "equal" and verdicts["2#0/tanh"]["value"] == "inherited"


class Steps(nn.Module):
    """Many operations in one call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = x + 1
        return x


def test_the_work_of_an_export_grows_with_the_run_and_not_faster(tmp_path):
    work = []
    for layers in (5, 5, 25):  # what the first one alone does is done once in a process
        with torch.no_grad():
            trace = fx_debug(nn.Sequential(*[Steps() for _ in range(layers)]), torch.ones(2))
        network_of(trace)
        work.append(calls_of(lambda trace=trace: trace.export(tmp_path / "run", to="model-explorer")))
    assert work[2] < 5.5 * work[1]
