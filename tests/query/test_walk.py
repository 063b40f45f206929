"""What leads where: upstream, downstream, neighbours, ways, subgraphs."""

from __future__ import annotations

import re

import networkx as nx
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.errors import NotFound, UsageError
from support.asked import ids
from support.trees import Does, linear, ones


def test_upstream_is_all_that_a_result_depends_on(asked):
    found = ids(asked.upstream("layers.0#0/matmul"))
    assert found == [
        "Model#0/tokens", "embed#0/input_1", "embed#0/weight", "embed#0/embedding", "embed#0/output", "embed#0",
        "layers.0#0/x", "layers.0.qkv#0/input_1", "layers.0.qkv#0/weight", "layers.0.qkv#0/bias",
        "layers.0.qkv#0/linear", "layers.0.qkv#0/output", "layers.0.qkv#0", "layers.0#0/chunk", "layers.0#0/getitem",
        "layers.0#0/getitem_1", "layers.0#0/transpose",
    ]  # fmt: skip
    assert ids(asked.upstream("layers.0#0/matmul", steps=1)) == ["layers.0#0/getitem", "layers.0#0/transpose"]
    assert asked.upstream("Model#0/tokens") == []


def test_downstream_is_all_that_depends_on_a_result(asked):
    assert ids(asked.downstream("head#0/linear")) == [
        "head#0/output",
        "head#0",
        "Model#0/log",
        "Model#0/output",
        "Model#0",
    ]
    everything = set(ids(asked.downstream("layers.1.qkv#0/bias")))
    assert "layers.1.softmax#0/softmax" in everything and not any(id.startswith("layers.0") for id in everything)


def test_nodes_calls_values_ids_and_paths_all_name_a_place(asked):
    call = asked.find("layers.1.softmax")[0]
    node = asked.node("layers.1.softmax#0")
    assert node is asked.node(call) is asked.node("layers.1.softmax") is asked.node(node)
    made = asked.node(call.outputs[0])  # the step that made the value
    assert made.id == "layers.1.softmax#0/softmax" and made.stats == call.outputs[0].stats
    assert asked.node(asked.root.inputs[0]).id == "Model#0/tokens"
    assert asked.node(asked.root).id == asked.node("#0").id == "Model#0"


def test_a_path_that_was_called_twice_is_no_place():
    trace = fx_debug(Does(lambda self, x: self.a(self.a(x)), a=linear()), ones())
    with pytest.raises(NotFound, match=re.escape("'a' was called 2 times: name one call, a#0 … a#1")):
        trace.node("a")


def test_producers_and_consumers_are_the_neighbours(asked):
    assert ids(asked.producers("layers.0")) == ["embed#0"]
    assert ids(asked.consumers("layers.0")) == ["Model#0/add"]
    assert ids(asked.producers("Model#0/add")) == ["embed#0", "layers.0#0"]
    assert ids(asked.consumers("layers.0#0/chunk")) == [f"layers.0#0/getitem{n}" for n in ("", "_1", "_2")]


def test_between_is_every_node_on_a_way(asked):
    found = ids(asked.between("layers.1.softmax", "Model#0/log"))
    assert found == [
        "layers.1.softmax#0", "layers.1#0/matmul_1", "layers.1.out#0/input_1", "layers.1.out#0/linear",
        "layers.1.out#0/output", "layers.1.out#0", "layers.1#0/output", "layers.1#0", "Model#0/add_1", "head#0/input_1",
        "head#0/linear", "head#0/output", "head#0", "Model#0/log",
    ]  # fmt: skip
    assert asked.between("Model#0/log", "layers.1.softmax") == []
    assert ids(asked.between("head", "head")) == ["head#0"]


def test_paths_are_the_ways_the_shortest_first(asked):
    ways = asked.paths("Model#0/add", "Model#0/add_1")
    assert ids(ways[0]) == ["Model#0/add", "Model#0/add_1"]  # the residual
    assert [len(way) for way in ways] == sorted(len(way) for way in ways)
    assert len(ways) == 4  # and through q, k and v
    assert asked.paths("Model#0/add", "Model#0/add_1", limit=2) == ways[:2]
    assert asked.paths("Model#0/add_1", "Model#0/add") == []


def test_a_subgraph_has_the_chosen_nodes_and_the_edges_among_them(asked):
    part = asked.subgraph(["layers.0#0/div", asked.find("layers.0.softmax")[0], "layers.0.softmax#0/input_1"])
    assert isinstance(part, nx.MultiDiGraph)
    assert list(part) == ["layers.0#0/div", "layers.0.softmax#0/input_1", "layers.0.softmax#0"]
    assert list(part.edges(data="argument")) == [("layers.0#0/div", "layers.0.softmax#0/input_1", "args[0]")]
    assert part.nodes["layers.0#0/div"] == asked.graph.nodes["layers.0#0/div"]
    everything = asked.subgraph(node for node in asked.graph if node != "spare")
    assert list(everything.edges(data=True)) == list(asked.graph.edges(data=True))
    assert len(asked.subgraph([])) == 0


def operations(nodes):
    return [node.op for node in nodes if node.kind in ("call_function", "call_method")]


def test_steps_count_operations_and_not_what_lies_between(asked):
    near = [operations(asked.upstream("Model#0/log", steps=steps)) for steps in (0, 1, 2, 3)]
    assert near == [[], ["linear"], ["add", "linear"], ["add", "linear", "add", "linear"]]  # residual; out, add; head
    assert operations(asked.downstream("layers.1.softmax", steps=3)) == ["matmul", "linear", "add"]
    kinds = {node.kind for node in asked.upstream("Model#0/log", steps=1)}
    assert kinds == {"call_function", "output", "call_module"}  # the way out of head


def test_steps_of_a_run_without_graphs_count_calls():
    trace = fx_debug(nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()), nn.GELU()), torch.ones(2), graph=False)
    assert [ids(trace.upstream("2", steps=steps)) for steps in (1, 2)] == [["1.0#0", "1#0"], ["0#0", "1.0#0", "1#0"]]


class Returns(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.loss = nn.Linear(2, 2), nn.Identity()

    def forward(self, tokens, mask=None):
        hidden = tokens * 2
        return {"logits": self.head(hidden), "cache": {"keys": [hidden + 1, hidden.sin()]}, "loss": hidden.mean()}


def test_what_a_run_was_given_and_returned_is_a_place_by_its_name(tmp_path):
    live = fx_debug(Returns(), (torch.ones(1, 2),), {"mask": torch.ones(2)}, save=tmp_path)
    for trace in (live, fxdebug.load(tmp_path)):
        places = ["logits", "cache.keys[0]", "cache.keys[1]", "tokens", "mask"]
        found = [trace.node(place).id for place in places]
        assert found == ["head#0/linear", "Returns#0/add", "Returns#0/sin", "Returns#0/tokens", "Returns#0/mask"]
        assert operations(trace.upstream("logits", steps=1)) == ["mul"]
        assert operations(trace.between("tokens", "cache.keys[1]")) == ["mul", "sin"]
        with pytest.raises(
            NotFound, match=r"nothing in this trace is called 'cache.keys\[2\]'. Did you mean 'cache.keys"
        ):
            trace.node("cache.keys[2]")
        assert trace.node("loss").op == "mean"  # the result: the module of this name was never called


def test_a_trace_gives_calls_by_name(asked):
    assert asked["head"] is asked["head#0"] and asked["head"].type == "Linear"
    assert asked[""] is asked.root and asked["Model"] is asked.root and asked["#0"] is asked.root
    model = nn.Module()
    model.cell, model.never = nn.Linear(2, 2), nn.Linear(2, 2)
    model.forward = lambda x: model.cell(model.cell(x))
    twice = fx_debug(model, torch.ones(2))
    assert twice["cell#1"].index == 2
    for name, message in (
        ("cell", "'cell' was called 2 times: name one call, cell#0 … cell#1"),
        ("never", "the module 'never' was never called in this run"),
        ("cel", "no call in this trace is named 'cel'. Did you mean 'cell'"),
    ):
        with pytest.raises(NotFound, match=message):
            twice[name]
    for wrong in (0, None, ("cell", 0)):
        with pytest.raises(UsageError, match="give the path of a module or the id of a call"):
            twice[wrong]
    with pytest.raises(TypeError):
        iter(twice)
