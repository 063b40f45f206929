"""Graphs that are given as one: nodes below one another, edges by the numbers of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fxdebug.features.independent.beside import AloneInPack
from fxdebug.features.independent.sequences import is_whole

MOST = 4  # graphs that are run alone


@dataclass(frozen=True)
class AloneInGraphs(AloneInPack):
    """One graph of several: ``places`` are its nodes, and ``edges`` its edges of ``edge_count``."""

    edges: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    edge_count: int = 0

    def _places(self, size: int, wanted: int) -> Tensor | None:
        assert self.places is not None
        if (size, wanted) == (self.length, len(self.places)):
            return self.places
        return self.edges if (size, wanted) == (self.edge_count, len(self.edges)) else None


def graphs_alone(inputs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[AloneInGraphs]:
    """Return each of several graphs alone: by what says which nodes are its own, else by what edges connect.

    >>> nodes, edges = torch.ones(4, 1), torch.tensor([[0, 1, 2], [1, 0, 3]])
    >>> given = {"x": nodes, "edge_index": edges}
    >>> [one.places.tolist() for one in graphs_alone(given, given)]
    [[0, 1], [2, 3]]
    """
    named = [(name, t) for name, t in tensors.items() if is_whole(t) and t.ndim == 2 and len(t) == 2 and t.numel()]
    floats = [t for t in tensors.values() if t.is_floating_point() and t.ndim > 1]
    for edge_name, edges in named:
        count = next((len(t) for t in floats if len(t) > int(edges.max())), 0)
        if "edge" not in edge_name or not count:
            continue
        of_node = _said(tensors, count)
        of_node = _connected(edges, count) if of_node is None else of_node
        graphs = int(of_node.max()) + 1
        if graphs < 2 or bool((of_node[edges[0]] != of_node[edges[1]]).any()):
            return []
        return [_alone(inputs, edge_name, edges, of_node, graph, graphs) for graph in range(min(graphs, MOST))]
    return []


def _said(tensors: Mapping[str, Tensor], count: int) -> Tensor | None:
    """Return the number of its graph for each node, by a number for each node or by the first node of each graph."""
    for tensor in tensors.values():
        if not is_whole(tensor) or tensor.ndim != 1 or len(tensor) < 2 or int(tensor[0]):
            continue
        steps = tensor.diff()
        if int(tensor[-1]) == count and bool((steps > 0).all()):
            return torch.arange(len(steps)).repeat_interleave(steps.cpu())
        if len(tensor) == count and bool(((steps == 0) | (steps == 1)).all()) and int(tensor[-1]):
            return tensor.cpu()
    return None


def _connected(edges: Tensor, count: int) -> Tensor:
    """Return the number of its part for each node: nodes between which edges lead are of one part."""
    least = torch.arange(count)
    ends = edges.cpu()
    for _ in range(count):
        before = least.clone()
        for one, other in ((ends[0], ends[1]), (ends[1], ends[0])):
            least.scatter_reduce_(0, one, least[other], "amin")
        least = least[least]
        if torch.equal(before, least):
            break
    return least.unique(return_inverse=True)[1]


def _alone(
    inputs: Mapping[str, Any], edge_name: str, edges: Tensor, of_node: Tensor, graph: int, graphs: int
) -> AloneInGraphs:
    nodes = (of_node == graph).nonzero().flatten()
    own = (of_node[edges[0].cpu()] == graph).nonzero().flatten()
    renamed = torch.zeros(len(of_node), dtype=edges.dtype)
    renamed[nodes] = torch.arange(len(nodes), dtype=edges.dtype)
    given = dict(inputs)
    for name, value in inputs.items():
        if not isinstance(value, Tensor):
            continue
        if name == edge_name:
            given[name] = renamed.to(edges.device)[edges[:, own.to(edges.device)]]
        elif is_whole(value) and value.ndim == 1 and len(value) == graphs + 1 and int(value[-1]) == len(of_node):
            given[name] = torch.tensor([0, len(nodes)], dtype=value.dtype, device=value.device)
        elif is_whole(value) and value.ndim == 1 and torch.equal(value.cpu(), of_node):
            given[name] = torch.zeros(len(nodes), dtype=value.dtype, device=value.device)
        else:
            given[name] = _part(value, nodes, len(of_node), own, edges.shape[1], graph, graphs)
    count = edges.shape[1]
    of_pack = graph, graphs
    return AloneInGraphs(f"graph {graph}", given, None, 1, nodes, len(of_node), False, True, *of_pack, own, count)


def _part(value: Tensor, nodes: Tensor, count: int, edges: Tensor, edge_count: int, graph: int, graphs: int) -> Tensor:
    """Return the rows of nodes, of edges or of graphs that are those of one graph; of a table of pairs both ways."""
    for size, places in ((count, nodes), (edge_count, edges), (graphs, torch.tensor([graph]))):
        if value.ndim and value.shape[0] == size:
            value = value.index_select(0, places.to(value.device))
            if size == count and value.ndim > 1 and value.shape[1] == size:
                value = value.index_select(1, places.to(value.device))
            return value
    return value
