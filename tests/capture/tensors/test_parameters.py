"""What a trace says of parameters and buffers: their statistics now, and whether the run changed them."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture.tensors import parameters

pytestmark = pytest.mark.usefixtures("both_ways")


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


class GivesItsWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3))
        self.twice, self.read = nn.Identity(), nn.Linear(3, 2, bias=False)

    def forward(self, x):
        met = x @ self.weight.T  # an operation meets it before a call is given it
        return met + self.read(x), self.twice(self.weight)


def test_weights_of_a_large_model_are_measured_where_a_call_is_given_them_and_not_where_operations_read_them(
    monkeypatch,
):
    monkeypatch.setattr(parameters, "AFFORDABLE", 1)
    for graph in (False, True):
        trace = fx_debug(GivesItsWeight(), torch.ones(1, 3), graph=graph)
        assert trace.find("twice")[0].inputs[0].stats.mean == 2.5
    nodes = trace.graph.nodes(data=True)
    reads = {node["path"]: node.get("stats") for _, node in nodes if node["kind"] == "get_attr"}
    assert reads["read"] is None


def test_infinite_weights_are_compared_without_a_warning() -> None:
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight[0] = float("inf")
        model.weight[1] = -float("inf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = [fx_debug(model, torch.ones(1, 4), graph=False) for _ in range(2)]
    assert not first.parameters[0].changed and first.parameters == second.parameters


def test_a_sign_that_two_weights_change_past_their_versions_is_noticed() -> None:
    class Flips(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data.view(-1)[1:4:2].neg_()  # their bits add up to what they did
            return super().forward(x)

    model = Flips(4, 4)
    trace = fx_debug(model, torch.ones(1, 4), graph=False)
    assert [parameter.changed for parameter in trace.parameters] == [True, False]


@pytest.mark.parametrize("size", [1, 3, 8191, 8192, 8193, 20_000])
def test_a_single_weight_that_changes_past_its_version_is_noticed_wherever_it_is(size: int) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, place: int | None) -> None:
            if place is not None:
                self.weight.data[place] += 1.0

    model = Writes()
    places: list[int | None] = [None, 0, size // 2, size - 1]
    assert [fx_debug(model, (place,)).parameters[0].changed for place in places] == [False, True, True, True]


def test_weights_of_a_model_that_trains_are_measured_once_a_step(monkeypatch) -> None:
    model, x = nn.Linear(4, 4), torch.ones(1, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    measured = []
    take = parameters.measure
    monkeypatch.setattr(parameters, "measure", lambda body: measured.append(tuple(body.shape)) or take(body))
    for _ in range(3):
        fx_debug(model, x, graph=False)
        model(x).sum().backward()
        optimizer.step()
    assert measured == [(4, 4), (4,)] * 3


def test_a_weight_that_takes_the_place_of_one_that_is_gone_is_looked_at_for_itself() -> None:
    model = nn.Linear(2, 2)
    seen = []
    for number in range(4):  # each may get the id and the memory of the one before
        model.weight = nn.Parameter(torch.full((2, 2), float(number)))
        stats = fx_debug(model, torch.ones(1, 2), graph=False).parameters[0].stats
        seen.append(None if stats is None else stats.mean)
    assert seen == [0.0, 1.0, 2.0, 3.0]


class Odd(torch.Tensor):
    """A class of the user's own."""


def test_beside_a_weight_of_another_kind_the_others_are_measured_once(monkeypatch) -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("odd", torch.ones(3).as_subclass(Odd))
    model.register_buffer("sparse", torch.eye(2).to_sparse())
    measured = []
    take = parameters.measure
    monkeypatch.setattr(parameters, "measure", lambda body: measured.append(tuple(body.shape)) or take(body))
    first, second = [fx_debug(model, torch.ones(1, 4), graph=False) for _ in range(2)]
    assert first.parameters == second.parameters
    assert measured == [(4, 4), (4,), (3,), (2, 2), (2, 2)]  # of sparse ones nothing tells that they did not change


def _write_in_place(model: nn.Module) -> None:
    with torch.no_grad():
        model.weight.mul_(2)


def _write_past_its_version(model: nn.Module) -> None:
    model.weight.data[0, 0] = 7.0


def _turn(model: nn.Module) -> None:
    model.weight.data = model.weight.data.t()


@pytest.mark.parametrize(
    "change",
    [
        lambda model: None,
        _write_in_place,
        _write_past_its_version,
        _turn,
        lambda model: model.weight.requires_grad_(False),
        lambda model: model.double(),
        lambda model: setattr(model, "weight", nn.Parameter(torch.zeros(3, 3))),
        lambda model: model.weight.numpy(force=True).__setitem__((0, 0), 5.0),
    ],
)
def test_the_values_of_weights_that_operations_read_are_those_of_this_run_whatever_earlier_runs_saw(change) -> None:
    """Square, so that a turned weight has the same shape; compared with a model that no run has seen."""
    model = nn.Linear(3, 3)
    for _ in range(2):
        fx_debug(model, torch.ones(2, 3))
    change(model)
    x = torch.ones(2, 3, dtype=model.weight.dtype)
    again, first = (fx_debug(each, x) for each in (model, copy.deepcopy(model)))
    assert again.values == first.values
    assert [value.stats for value in again.values] == [value.stats for value in first.values]
