"""``trace.graph``: the nodes, the edges and what they say; coarser views; GraphML and JSON and back."""

from __future__ import annotations

import contextlib
import io
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.data.graphs import refs_in
from fxdebug.query.network import Network, network_of
from support.trees import Does, linear, ones
from zoo import zoo_sample

KINDS = {"placeholder", "get_attr", "call_function", "call_method", "call_module", "output"}


class Attention(nn.Module):
    """Ten operations, two of them with the same name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        return self.out(scores.softmax(-1) @ v)


class Small(nn.Module):
    """Tied weights, a parameter read by the model itself, one nobody reads, a module nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Attention(8) for _ in range(2))
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(8))
        self.idle = nn.Parameter(torch.ones(8))
        self.spare = nn.Linear(2, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        x = x + x
        return self.head(x * self.scale)


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(0)
    return fx_debug(Small(), torch.tensor([[1, 2, 3], [4, 5, 6]]))


def edges(graph: nx.MultiDiGraph) -> list[tuple[str, str, str]]:
    """(from, to, argument) of every edge."""
    return [(source, target, data["argument"]) for source, target, data in graph.edges(data=True)]


# Nodes -------------------------------------------------------------------------------------------


def test_ids_are_readable_and_in_execution_order(trace):
    assert [id for id in trace.graph if id.startswith("layers.0")] == [
        "layers.0#0/x",
        "layers.0.qkv#0/input_1",
        "layers.0.qkv#0/weight",
        "layers.0.qkv#0/bias",
        "layers.0.qkv#0/linear",
        "layers.0.qkv#0/output",
        "layers.0.qkv#0",
        "layers.0#0/chunk",
        "layers.0#0/getitem",
        "layers.0#0/getitem_1",
        "layers.0#0/getitem_2",
        "layers.0#0/transpose",
        "layers.0#0/matmul",
        "layers.0#0/div",
        "layers.0#0/softmax",
        "layers.0#0/matmul_1",
        "layers.0.out#0/input_1",
        "layers.0.out#0/weight",
        "layers.0.out#0/bias",
        "layers.0.out#0/linear",
        "layers.0.out#0/output",
        "layers.0.out#0",
        "layers.0#0/output",
        "layers.0#0",
    ]


def test_ids_are_the_same_in_the_next_run(trace):
    torch.manual_seed(1)
    again = fx_debug(Small(), torch.tensor([[7, 8], [9, 0]]))
    assert list(again.graph) == list(trace.graph)
    assert edges(again.graph) == edges(trace.graph)


def test_a_node_has_the_attributes_people_ask_for(trace):
    node = dict(trace.graph.nodes["layers.0#0/softmax"])
    value = trace.node("layers.0#0/softmax").value
    assert node.pop("source").rpartition("/")[2].startswith("test_network.py:")
    assert node.pop("stats").startswith("mean 0.3333 std ")
    numbers = {name: node.pop(name) for name in ("mean", "std", "min", "max", "absmax")}
    assert numbers == {name: getattr(value.stats, name) for name in numbers}
    assert node == {
        "kind": "call_method", "op": "softmax", "target": "softmax", "path": "layers.0", "call": 2, "depth": 2,
        "order": trace.node("layers.0#0/softmax").position, "status": "verified", "shape": "(2, 3, 3)",
        "dtype": "float32", "device": "cpu", "value": value.number, "count": 18, "nan": 0, "posinf": 0, "neginf": 0,
        "zeros": 0,
    }  # fmt: skip


def test_every_operation_call_input_read_and_output_is_a_node(trace):
    graph = trace.graph
    expected = sum(len(call.graph) - len(call.children) for call in trace.calls) + len(trace.calls)
    assert len(graph) == expected + len(trace.never_called)
    counts = Counter(kind for _, kind in graph.nodes(data="kind"))
    assert set(counts) == KINDS
    assert counts["call_module"] == len(trace.calls) + len(trace.never_called)
    assert counts["output"] == len(trace.calls)


def test_a_module_called_twice_has_two_numbers():
    one = Does(lambda self, x: self.a(self.a(x)), a=linear())
    graph = fx_debug(one, ones()).graph
    calls = [id for id, kind in graph.nodes(data="kind") if kind == "call_module"]
    assert calls == ["a#0", "a#1", "Does#0"]
    assert ("a#0", "a#1/input_1", "args[0]") in edges(graph)


def test_a_module_named_like_the_model_does_not_take_its_id():
    model = nn.Sequential()
    model.add_module("Sequential", linear())
    graph = fx_debug(model, ones()).graph
    assert {"#0", "Sequential#0"} <= set(graph)
    assert nx.is_directed_acyclic_graph(graph)


# Edges -------------------------------------------------------------------------------------------


def test_x_plus_x_keeps_two_edges(trace):
    both = trace.graph["Small#0/add_1"]["Small#0/add_2"]
    facts = {
        "kind": "data",
        "shape": "(2, 3, 8)",
        "dtype": "float32",
        "value": trace.node("Small#0/add_1").value.number,
    }
    assert both == {0: {"argument": "args[0]", **facts}, 1: {"argument": "args[1]", **facts}}


def test_an_edge_says_which_output_feeds_which_argument(trace):
    parts = [
        (target, data["argument"], data["output"])
        for _, target, data in trace.graph.out_edges("layers.0#0/chunk", data=True)
    ]
    assert parts == [
        ("layers.0#0/getitem", "args[0]", "[0]"),
        ("layers.0#0/getitem_1", "args[0]", "[1]"),
        ("layers.0#0/getitem_2", "args[0]", "[2]"),
    ]
    assert [data["argument"] for _, _, data in trace.graph.in_edges("layers.0.out#0/linear", data=True)] == [
        "args[0]", "args[1]", "args[2]",
    ]  # fmt: skip


def test_tensors_in_lists_and_keywords_are_named_by_their_place():
    model = Does(lambda self, a, b: torch.cat([a, self.p(input=b)], dim=-1), p=linear())
    graph = fx_debug(model, {"a": ones(), "b": ones()}).graph
    into = {argument: source for source, target, argument in edges(graph) if target == "Does#0/cat"}
    assert into == {"args[0][0]": "Does#0/a", "args[0][1]": "p#0"}
    assert ("Does#0/b", "p#0/input_1", "input") in edges(graph)


def test_everything_flows_from_inputs_and_parameters_to_the_output(trace):
    graph = trace.graph
    assert nx.is_directed_acyclic_graph(graph)
    order = nx.get_node_attributes(graph, "order")
    assert all(order[source] < order[target] for source, target in graph.edges())
    starts = {
        graph.nodes[id]["kind"] for id in graph if graph.in_degree(id) == 0 and graph.nodes[id].get("call") is not None
    }
    assert starts == {"placeholder", "get_attr"}
    assert [id for id in graph if graph.out_degree(id) == 0] == ["Small#0", "spare"]


def test_what_was_written_in_place_is_an_edge_through_memory():
    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[0].mul_(3)  # y is another value after this
        return self.a(y)

    graph = fx_debug(Does(body, a=linear()), ones(2)).graph
    through = [(u, v) for u, v, data in graph.edges(data=True) if data["kind"] == "memory"]
    assert through == [("Does#0/mul_1", "a#0/input_1")]  # fx's name for the second operation whose name begins so
    assert nx.is_directed_acyclic_graph(graph)


def test_what_was_written_in_place_leaves_as_it_then_is():
    trace = fx_debug(nn.Sequential(linear(), nn.ReLU(inplace=True)), -ones())
    assert trace.node("1#0/output").stats == trace.find("1")[0].outputs[0].stats
    assert trace.node("1#0/output").stats.min == 0


# What did not happen -----------------------------------------------------------------------------


def test_shared_weights_unused_parameters_and_modules_that_never_ran_are_visible(trace):
    graph = trace.graph
    assert graph.graph == {
        "model": "Small", "never_called": "spare", "shared_weights": "embed.weight = head.weight", "shared_modules": "",
        "unused_parameters": "idle, spare.weight, spare.bias",
    }  # fmt: skip
    assert graph.nodes["spare"] == {"kind": "call_module", "op": "Linear", "path": "spare", "status": "never called"}
    reads = {id for id, name in graph.nodes(data="parameter") if name == "embed.weight"}
    assert reads == {"embed#0/weight", "head#0/weight"}


def test_a_shared_module_is_named_with_all_its_names():
    model = Does(lambda self, x: self.b(self.a(x)), a=(one := linear()), b=one)
    assert fx_debug(model, ones()).graph.graph["shared_modules"] == "a = b"


def test_nobody_says_unused_of_parameters_in_a_call_that_nobody_sees_into():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():  # the fast path: one kernel for all of it
        trace = fx_debug(nn.Sequential(layer), torch.ones(1, 3, 8))
    assert trace.find("0")[0].status == "opaque"
    assert trace.graph.graph["unused_parameters"] == ""


# Any model ---------------------------------------------------------------------------------------

GROUPS = [group for group in zoo_sample.PLAIN if group not in ("scale", "tensors")]
ARCHITECTURES = ["hf/bert", "hf/bart", "hf/longformer", "hf/mamba", "hf/whisper", "hf/xlnet"]


def traced(build: Callable[[], Any]) -> Trace:
    model, kwargs, *_ = build()
    with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return fx_debug(model, kwargs)
        except Exception:
            found = fxdebug.last_failed()
            assert found is not None
            return found


@pytest.mark.parametrize("group", [*GROUPS, *ARCHITECTURES])
def test_in_any_model_values_flow_forward_from_who_has_them_to_who_asks_for_them(group):
    entries = [(name, build) for name, build in zoo_sample.entries(whole=False) if name.startswith(f"{group}/")]
    assert entries
    for name, build in entries:
        assert inconsistencies(network_of(traced(build))) == [], name


def inconsistencies(net: Network) -> list[str]:
    """What cannot be right about nodes and edges."""
    found = []
    for edge in net.edges:
        source, target = net.nodes[edge.source], net.nodes[edge.target]
        if source.position >= target.position:
            found.append(f"{edge} leads back in time")
        numbers = {value.number for value in source.values}
        memory = {value.storage for value in source.values if value.storage is not None}
        value = edge.value  # written to meanwhile, it is another value in the same memory
        if edge.kind == "data" and value is not None and value.number not in numbers and value.storage not in memory:
            found.append(f"{edge} has a value that its source does not have")
    for node in net.nodes.values():
        arriving = [edge for edge in net.into.get(node.id, ()) if edge.kind == "data"]
        if node.kind in ("call_function", "call_method") and node.step is not None:
            operands = (*node.step.args, *node.step.kwargs.values())
            if len(arriving) != sum(len(refs_in(operand)) for operand in operands):
                found.append(f"{node} is not fed by all of its arguments")
        if node.kind == "placeholder" and node.call.parent is not None and node.values and not net.into.get(node.id):
            found.append(f"nobody knows where {node} came from")
    return found


# Where there is less to see ----------------------------------------------------------------------


def test_the_same_body_with_children_of_other_classes_names_those():
    class Block(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.linear, self.act = nn.Linear(4, 4), act

        def forward(self, x):
            return self.act(self.linear(x))

    model = nn.Sequential(Block(nn.ReLU()), Block(nn.GELU()), Block(nn.ReLU()))
    first, second = fx_debug(model, torch.ones(1, 4)), fx_debug(model, torch.ones(1, 4))
    for trace in (first, second):
        graphs = [trace.find(str(i))[0].graph for i in range(3)]
        assert [graph.ops[2].op for graph in graphs] == ["ReLU", "GELU", "ReLU"]
        assert graphs[0] is graphs[2]
    assert all(a is b for a, b in zip(first.graphs, second.graphs, strict=True))  # written once, for both runs


def test_an_opaque_call_is_one_node_between_its_neighbours():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        graph = fx_debug(nn.Sequential(nn.Linear(8, 8), layer, nn.Linear(8, 8)), torch.ones(1, 3, 8)).graph
    assert graph.nodes["1#0"]["status"] == "opaque"
    assert [id for id in graph if id.startswith("1#0")] == ["1#0"]
    assert [*graph.predecessors("1#0"), *graph.successors("1#0")] == ["0#0", "2#0/input_1"]


def test_a_run_without_graphs_connects_calls_by_their_values():
    model = nn.Sequential(linear(), nn.ReLU(), linear())
    graph = fx_debug(model, ones(), graph=False).graph
    assert edges(graph) == [
        ("Sequential#0/args[0]", "0#0", "args[0]"),
        ("0#0", "1#0", "args[0]"),
        ("1#0", "2#0", "args[0]"),
        ("2#0", "Sequential#0", "result"),
    ]
    assert "status" not in graph.nodes["0#0"] and "unused_parameters" not in graph.graph


def test_a_run_that_raised_has_the_graph_of_what_ran():
    model = nn.Sequential(linear(), nn.Linear(3, 3))
    with pytest.raises(RuntimeError):
        fx_debug(model, ones())
    graph = fxdebug.last_failed().graph
    assert graph.nodes["0#0"]["status"] == "verified"
    assert graph.nodes["1#0"]["error"].startswith("RuntimeError: mat1 and mat2")
    assert "error" not in graph.nodes["0#0"]


# Coarser -----------------------------------------------------------------------------------------


def test_depth_decides_which_calls_are_one_node(trace):
    assert list(trace.graph_at(depth=0)) == ["Small#0"]
    one = trace.graph_at(depth=1)
    assert edges(one) == [
        ("Small#0/tokens", "embed#0", "args[0]"),
        ("embed#0", "layers.0#0", "args[0]"),
        ("embed#0", "Small#0/add", "args[0]"),
        ("layers.0#0", "Small#0/add", "args[1]"),
        ("Small#0/add", "layers.1#0", "args[0]"),
        ("Small#0/add", "Small#0/add_1", "args[0]"),
        ("layers.1#0", "Small#0/add_1", "args[1]"),
        ("Small#0/add_1", "Small#0/add_2", "args[0]"),
        ("Small#0/add_1", "Small#0/add_2", "args[1]"),
        ("Small#0/add_2", "Small#0/mul", "args[0]"),
        ("Small#0/scale", "Small#0/mul", "args[1]"),
        ("Small#0/mul", "head#0", "args[0]"),
        ("head#0", "Small#0/output", "result"),
        ("Small#0/output", "Small#0", "result"),
    ]
    assert set(one) < set(trace.graph_at(depth=2)) < set(trace.graph)
    assert set(trace.graph_at(depth=9)) == set(trace.graph) - {"spare"}


def test_modules_only_connects_calls_through_the_operations_between_them(trace):
    assert edges(trace.graph_at(depth=1, ops=False)) == [
        ("embed#0", "layers.0#0", "args[0]"),
        ("embed#0", "layers.1#0", "args[0]"),
        ("embed#0", "head#0", "args[0]"),
        ("layers.0#0", "layers.1#0", "args[0]"),
        ("layers.0#0", "head#0", "args[0]"),
        ("layers.1#0", "head#0", "args[0]"),
    ]
    leaves = trace.graph_at(ops=False)
    assert list(leaves) == ["embed#0", "layers.0.qkv#0", "layers.0.out#0", "layers.1.qkv#0", "layers.1.out#0", "head#0"]
    assert leaves["layers.0.qkv#0"]["layers.0.out#0"][0]["shape"] == "(2, 3, 24)"  # what left the one


def test_modules_only_keeps_an_edge_for_each_argument():
    attention = nn.MultiheadAttention(4, 1, batch_first=True)
    model = Does(lambda self, x: self.b(*[self.a(x)] * 3)[0], a=linear(), b=attention)
    graph = fx_debug(model, torch.ones(1, 2, 4)).graph_at(depth=1, ops=False)
    assert edges(graph) == [("a#0", "b#0", f"args[{i}]") for i in range(3)]


# Elsewhere ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"depth": 1}, {"ops": False}], ids=["all", "depth", "modules"])
def test_the_graph_comes_back_from_graphml_and_from_json(trace, tmp_path, options):
    expected = trace.graph_at(**options) if options else trace.graph
    trace.export(tmp_path / "g.graphml", **options)
    trace.export(tmp_path / "g.json", **options)
    xml = nx.read_graphml(tmp_path / "g.graphml", force_multigraph=True)
    data = nx.node_link_graph(json.loads((tmp_path / "g.json").read_text()), edges="edges")
    for found in (xml, data):
        assert isinstance(found, nx.MultiDiGraph)
        assert dict(found.nodes(data=True)) == dict(expected.nodes(data=True))
        assert Counter(map(str, found.edges(data=True))) == Counter(map(str, expected.edges(data=True)))
        assert found.graph.items() >= expected.graph.items() - {("shared_modules", "")}


def test_names_that_xml_cannot_hold_are_written_readably(tmp_path):
    model = nn.Sequential()
    for name in ('a<b>&"\x01', 'a<b>&"\x02', 'a<b>&"\ufffd'):
        model.add_module(name, linear())
    trace = fx_debug(model, ones())
    found = nx.read_graphml(trace.export(tmp_path / "g.graphml"), force_multigraph=True)
    assert {id for id in found if "/" not in id} >= {f'a<b>&"\ufffd#0{more}' for more in ("", "~", "~~")}
    assert len(found) == len(trace.graph)


def test_nan_infinity_and_complex_numbers_go_through_json_and_graphml(tmp_path):
    model = Does(lambda self, x: (x.log(), torch.complex(x, x), x / 0, x.sum() * torch.nan))
    graph = (trace := fx_debug(model, torch.zeros(2))).graph
    bad = {id: (node["nan"], node["posinf"], node["neginf"]) for id, node in graph.nodes(data=True) if "nan" in node}
    assert (bad["Does#0/log"], bad["Does#0/div"], bad["Does#0/mul"]) == ((0, 0, 2), (2, 0, 0), (1, 0, 0))
    assert "mean" not in graph.nodes["Does#0/log"] and graph.nodes["Does#0/complex_1"]["mean"] == 0
    json.loads(trace.export(tmp_path / "g.json").read_text(), parse_constant=pytest.fail)
    nx.read_graphml(trace.export(tmp_path / "g.graphml"))


def test_a_loaded_trace_gives_an_equal_graph(tmp_path):
    torch.manual_seed(0)
    model, tokens = Small(), torch.tensor([[1, 2, 3]])
    trace = fx_debug(model, tokens, save=tmp_path)
    loaded = fxdebug.load(tmp_path)
    assert nx.utils.graphs_equal(loaded.graph, trace.graph)
    assert nx.utils.graphs_equal(loaded.graph_at(1, ops=False), trace.graph_at(1, ops=False))


def test_networkx_works_on_it(trace):
    graph = trace.graph
    assert nx.has_path(graph, "Small#0/tokens", "Small#0")
    longest = nx.dag_longest_path(graph)
    assert longest[-1] == "Small#0" and "layers.0#0/softmax" in longest
    assert "embed#0/embedding" in nx.ancestors(graph, "layers.1#0/softmax")
