"""What flows between the operations of a run, seen through calls, arguments and results."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fxdebug import Trace, fx_debug
from fxdebug.features.shared.programs.dataflow import Dataflow


class Pair(nn.Module):
    def forward(self, x: Tensor, both: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return x + both["y"], x.chunk(2)[1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.inner = nn.Sequential(nn.Identity(), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        summed, half = self.pair(x, {"y": y})
        return self.inner(summed) * self.scale + half


def flow(trace: Trace) -> dict[str, list[tuple[str, int]]]:
    found = Dataflow(trace)
    return {node.id: [(one.node, one.output) for one in found.sources(node)] for node in found.nodes}


def test_operations_take_what_other_operations_made_whatever_calls_lie_between() -> None:
    x, y = ("Net#0/x", 0), ("Net#0/y", 0)
    assert flow(fx_debug(Net(), (torch.ones(2), torch.ones(2)))) == {
        "Net#0/x": [],
        "Net#0/y": [],
        "pair#0/add": [x, y],
        "pair#0/chunk": [x],
        "pair#0/getitem": [("pair#0/chunk", 0)],
        "pair#0/getitem_1": [("pair#0/chunk", 1)],
        "Net#0/getitem": [("pair#0/add", 0)],
        "Net#0/getitem_1": [("pair#0/getitem_1", 0)],
        "inner.1#0/relu": [("Net#0/getitem", 0)],
        "Net#0/scale": [],
        "Net#0/mul": [("inner.1#0/relu", 0), ("Net#0/scale", 0)],
        "Net#0/add": [("Net#0/mul", 0), ("Net#0/getitem_1", 0)],
        "Net#0/output": [("Net#0/add", 0)],
    }


class Parts(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sigmoid(), x * 2


class Second(nn.Module):
    def forward(self, parts: tuple[Tensor, Tensor]) -> Tensor:
        return parts[1] + 1


def test_calls_that_nothing_can_be_seen_in_are_nodes() -> None:
    trace = fx_debug(nn.Sequential(nn.Sequential(Parts(), Second()), nn.ReLU()), torch.ones(2), graph=False)
    assert flow(trace) == {
        "Sequential#0/args[0]": [],
        "0.0#0": [("Sequential#0/args[0]", 0)],
        "0.1#0": [("0.0#0", 0), ("0.0#0", 1)],
        "1#0": [("0.1#0", 0)],
    }
