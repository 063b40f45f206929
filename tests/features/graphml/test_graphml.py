"""GraphML, GEXF and node-link JSON are read by networkx, with the numbers of the trace and of its measures."""

from __future__ import annotations

import json
import math

import networkx as nx
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from support.exported import RUNS, run

READ = {
    ".graphml": lambda path: nx.read_graphml(path, force_multigraph=True),
    ".gexf": nx.read_gexf,
    ".json": lambda path: nx.node_link_graph(json.loads(path.read_text()), edges="edges"),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("form", READ)
def test_networkx_reads_every_node_and_edge_with_its_attributes(tmp_path, name, form):
    trace = run(name)
    read, whole = READ[form](trace.export(tmp_path / f"run{form}")), trace.graph
    assert len(read) == len(whole)
    assert read.number_of_edges() == whole.number_of_edges()
    if name == "hostile":
        return  # ids are changed where XML cannot hold them
    for id, data in whole.nodes(data=True):
        found = dict(read.nodes[id])
        assert found.pop("label", data["op"]) == data["op"]
        numbers = {name for name, one in data.items() if isinstance(one, float) or name in ("min", "max", "absmax")}
        assert {name: float(found.pop(name)) for name in numbers} == {name: float(data[name]) for name in numbers}
        assert found == {name: one for name, one in data.items() if name not in numbers}


@pytest.mark.parametrize("form", READ)
def test_measures_that_were_taken_are_attributes_and_none_is_made_up(tmp_path, form):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.ones(2, 64)
    trace = fx_debug(model, x).with_measures(fxdebug.profile(model, x, repeats=2, peak=False))
    read = READ[form](trace.export(tmp_path / f"run{form}"))
    for name, taken in trace.taken.items():
        known = {id: data[name] for id, data in read.nodes(data=True) if name in data}
        assert known == {id: one for id, one in taken.numbers.items() if math.isfinite(one)}
    assert "memory.peak" not in read.nodes["0#0"]
    closed = READ[form](trace.export(tmp_path / f"closed{form}", depth=1))
    assert closed.nodes["0#0"]["time.self"] == trace.numbers("time.self")["0#0"]
