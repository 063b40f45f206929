"""What a trace says of parameters and buffers: their statistics now, and whether the run changed them."""

from __future__ import annotations

import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture import parameters


def changed(trace):
    return {p.name: (p.before.mean, round(p.stats.mean, 4)) for p in trace.parameters if p.changed}


class WritesThroughData(nn.Module):
    """As codebooks and moving averages do: no version moves."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.weight.data.mul_(0.5)
        self.seen.data.add_(1)
        return x + 1


def test_running_statistics_of_batch_norm_have_changed():
    trace = fx_debug(nn.BatchNorm1d(3), torch.arange(6.0).view(2, 3))
    assert changed(trace) == {
        "running_mean": (0.0, 0.25), "running_var": (1.0, 1.35), "num_batches_tracked": (0.0, 1.0)
    }  # fmt: skip


def test_nothing_has_changed_in_evaluation():
    assert changed(fx_debug(nn.BatchNorm1d(3).eval(), torch.arange(6.0).view(2, 3))) == {}


def test_writes_through_data_are_changes():
    assert changed(fx_debug(WritesThroughData(), torch.ones(1))) == {"weight": (1.0, 0.5), "seen": (0.0, 1.0)}


def test_weights_written_between_two_runs_are_measured_anew():
    model = nn.Linear(2, 2, bias=False)
    fx_debug(model, torch.ones(1, 2))
    model.weight.data[0, 0] = 1e6  # moves no version
    (weight,) = fx_debug(model, torch.ones(1, 2)).parameters
    assert (weight.stats.max, weight.before, weight.changed) == (1e6, weight.stats, False)


def test_what_a_large_model_changes_is_measured_and_the_rest_is_not(monkeypatch):
    monkeypatch.setattr(parameters, "AFFORDABLE", 10)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    found = {p.name: p for p in fx_debug(model, torch.randn(4, 3)).parameters}
    assert found["0.weight"].stats is None and not found["0.weight"].changed
    assert found["1.running_mean"].changed and found["1.running_mean"].stats.count == 3


def test_no_statistics_are_taken_when_none_are_wanted():
    found = fx_debug(nn.BatchNorm1d(3), torch.randn(4, 3), weights=False).parameters
    assert [p.stats for p in found] == [None] * 5
    assert [p.name for p in found if p.changed] == ["running_mean", "running_var", "num_batches_tracked"]
