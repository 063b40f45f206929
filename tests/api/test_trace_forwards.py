"""``trace_forwards``: each forward of a block is traced, and the program gets its results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxdebug


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out

    def loss(self, x: Tensor) -> Tensor:
        return self(x).pow(2).mean()


def trained(traced: bool) -> tuple[Noisy, list[fxdebug.Trace]]:
    torch.manual_seed(0)
    model = Noisy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found: list[fxdebug.Trace] = []
    for _ in range(3):
        optimizer.zero_grad()
        if traced:
            with fxdebug.trace_forwards(model) as traces:
                model(torch.randn(5, 4)).sum().backward()
            found += traces
        else:
            model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
    return model, found


def test_a_training_that_is_traced_is_bit_equal_to_one_that_is_not() -> None:
    plain, _ = trained(False)
    model, traces = trained(True)
    after = torch.rand(1)
    trained(False)
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), model.state_dict().values()))
    assert torch.equal(after, torch.rand(1)) and "forward" not in vars(model)
    assert [[call.path for call in trace.calls] for trace in traces] == [
        ["", "layers", "layers.0", "layers.1", "layers.2", "layers.3"]
    ] * 3
    assert {call.status for trace in traces for call in trace.calls} == {"verified"}


def test_runs_of_further_forwards_have_their_number_behind_the_name(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with fxdebug.trace_forwards(model, save=tmp_path / "run", values="tensors") as traces:
        for rows in (1, 2):
            model(torch.ones(rows, 2))
    assert [trace.folder for trace in traces] == [tmp_path / "run", tmp_path / "run-1"]
    assert [fxdebug.load(tmp_path / name).root.outputs[0].shape for name in ("run", "run-1")] == [(1, 2), (2, 2)]


def test_another_method_is_traced_with_the_forwards_in_it() -> None:
    model = Noisy()
    with fxdebug.trace_forwards(model, method="loss") as (traces):
        model.loss(torch.ones(3, 4)).backward()
    (trace,) = traces
    assert trace.root.method == "loss" and trace.root.outputs[0].shape == ()
    assert [call.path for call in trace.calls][:3] == ["", "", "layers"] and "loss" not in vars(model)


def test_an_exception_passes_through_and_leaves_a_partial_trace() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), fxdebug.trace_forwards(model) as traces:
        model(torch.ones(1, 4))
    assert traces[0].root.error is not None and fxdebug.last_failed() is traces[0]
    assert "forward" not in vars(model)


def test_arguments_that_cannot_work_are_errors() -> None:
    for wrong in ({"method": "foward"}, {"values": "all"}, {"most": 0}):
        with pytest.raises(fxdebug.UsageError), fxdebug.trace_forwards(nn.ReLU(), **wrong):  # type: ignore[arg-type]
            pass


def test_after_the_forwards_that_were_asked_for_further_ones_run_as_they_are():
    model = nn.Linear(2, 2)
    with fxdebug.trace_forwards(model, most=2) as traces:
        for _ in range(3):
            assert "forward" in vars(model) or len(traces) == 2
            model(torch.ones(1, 2))
        assert len(traces) == 2 and "forward" not in vars(model)
