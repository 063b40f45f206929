"""Small tensors that are measured together have the statistics that each has alone, to the last bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.data.values import Stats
from fxdebug.native import dispatch
from fxdebug.stats import host_batch
from fxdebug.stats.cpu_sums import FEW
from fxdebug.stats.host_batch import HostBatch, fits
from fxdebug.stats.measure import measure

DTYPES = [torch.float32, torch.float64]


def of_every_kind(count: int, dtype: torch.dtype) -> list[Tensor]:
    """Tensors of one length: usual ones, far from zero, of huge and tiny numbers, with zeros, NaN and infinities."""
    usual = torch.randn(count, generator=torch.Generator().manual_seed(count), dtype=dtype)
    first = torch.arange(count) == 0
    return [
        usual,
        usual * 1e-3 + 5,
        usual * 1e30,
        usual * 1e-30,
        torch.relu(usual),
        torch.zeros(count, dtype=dtype),
        -torch.zeros(count, dtype=dtype),
        torch.full((count,), 0.1, dtype=dtype),
        usual.where(~first, torch.nan),
        usual.where(~first, -torch.inf),
        torch.full((count,), torch.inf, dtype=dtype),
    ]


def measured_together(tensors: list[Tensor]) -> list[Stats]:
    found: dict[int, Stats] = {}
    batch = HostBatch()
    for number, tensor in enumerate(tensors):
        batch.add(tensor.data_ptr(), tensor.dtype, tensor.numel(), lambda stats, n=number: found.update({n: stats}))
    batch.measure()
    return [found[number] for number in range(len(tensors))]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 127, 128, 129, 1000, FEW])
def test_tensors_measured_together_have_the_statistics_that_each_has_alone(count):
    with torch.no_grad(), dispatch.using(None):
        tensors = [tensor for dtype in DTYPES for tensor in of_every_kind(count, dtype)]
        alone = [measure(tensor) for tensor in tensors]
        assert list(map(repr, measured_together(tensors))) == list(map(repr, alone))


def test_a_batch_that_is_full_measures_what_waits(monkeypatch):
    monkeypatch.setattr(host_batch, "ROOM", 100)
    found: list[Stats] = []
    batch = HostBatch()
    for number in range(10):
        batch.add(torch.full((8,), float(number)).data_ptr(), torch.float32, 8, found.append)
    assert len(found) == 8
    batch.measure()
    batch.measure()
    assert [stats.count for stats in found] == [8] * 10


def test_a_batch_takes_no_other_tensors():
    fitting = {torch.float32: FEW, torch.float64: 1}
    assert all(fits(dtype, count) for dtype, count in fitting.items())
    other = [(torch.float32, FEW + 1), (torch.float32, 0), (torch.bfloat16, 8), (torch.int64, 8), (torch.complex64, 8)]
    assert not any(fits(dtype, count) for dtype, count in other)


class Overwriting(nn.Module):
    """Gives the same memory to a child twice, and writes to it in between and afterwards."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.child = how, nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        self.child(y)
        if self.how == "in place":
            y.fill_(2.0)
        else:
            y.data.fill_(2.0)
        self.child(y)
        return y.fill_(3.0)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("how, graph", [("in place", False), ("in place", True), ("unseen", True)])
def test_a_tensor_that_is_overwritten_before_the_run_is_over_has_the_numbers_it_had(how, graph):
    trace = fx_debug(Overwriting(how), torch.ones(4), graph=graph)
    means = [call.outputs.item.stats.mean for call in trace.calls]
    assert means == [3.0, 1.0, 2.0]


def test_a_batch_that_fails_costs_only_its_statistics(monkeypatch):
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(HostBatch, "add", fail)
    with dispatch.using(None):
        trace = fx_debug(Overwriting("in place"), torch.ones(4))
    assert trace.output.tolist() == [3.0] * 4
    assert [call.outputs.item.stats for call in trace.calls] == [None] * 3
    assert {note.what for note in trace.notes} == {"no statistics of small tensors: MemoryError: no room"}
