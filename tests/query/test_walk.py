"""What leads where: upstream, downstream, neighbours, ways, subgraphs."""

from __future__ import annotations

import re

import networkx as nx
import pytest

from fxdebug import fx_debug
from fxdebug.errors import NotFound
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
