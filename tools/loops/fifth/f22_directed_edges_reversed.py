"""pyg-team/pytorch_geometric#126: on a directed graph the messages ran from the target of an edge to its source.

A node of a citation graph is classified by what points at it; the layer gathered what it points to.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
CLASSES = 4
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class MeanConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, flow: str) -> None:
        super().__init__()
        self.lin_root = nn.Linear(in_channels, out_channels)
        self.lin_neigh = nn.Linear(in_channels, out_channels, bias=False)
        self.flow = flow

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        j, i = (0, 1) if self.flow == "source_to_target" else (1, 0)
        messages = x.index_select(0, edge_index[j])
        total = torch.zeros_like(x).index_add_(0, edge_index[i], messages)
        degree = torch.zeros(x.size(0)).index_add_(0, edge_index[i], torch.ones(edge_index.size(1)))
        return self.lin_root(x) + self.lin_neigh(total / degree.clamp(min=1)[:, None])


class DirectedGNN(nn.Module):
    def __init__(self, features: int, flow: str, hidden: int = 32) -> None:
        super().__init__()
        self.conv1 = MeanConv(features, hidden, flow)
        self.lin = nn.Linear(hidden, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.lin(F.relu(self.conv1(x, edge_index)))


def citation_graph(generator: torch.Generator, nodes: int, features: int) -> tuple[torch.Tensor, ...]:
    """A fresh graph each time; edges run (source, target) and the class is read from the mean of the sources."""
    x = torch.randn(nodes, features, generator=generator)
    target = torch.arange(nodes).repeat_interleave(3)
    source = torch.randint(0, nodes, (3 * nodes,), generator=generator)
    mean = torch.zeros_like(x).index_add_(0, target, x[source]) / 3
    return x, torch.stack([source, target]), mean[:, :CLASSES].argmax(dim=1)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(21)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(22)
    model = DirectedGNN(8, flow="target_to_source" if bad else "source_to_target")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)

    def step(i: int) -> None:
        x, edge_index, y = citation_graph(generator, 200, 8)
        logits = model(x, edge_index)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
