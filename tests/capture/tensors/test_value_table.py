"""A tensor whose data is exchanged, or written to without its version moving, gets a value that is right then."""

from __future__ import annotations

import dataclasses
import random
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.data.calls import Call
from fxdebug.data.values import Stats
from fxdebug.stats.measure import measure

pytestmark = pytest.mark.usefixtures("both_ways")


class Exchanging(nn.Module):
    """Shows an activation, a weight, a buffer and a plain attribute before and after something was done to them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("buffer", torch.zeros(3))
        self.attribute = torch.zeros(3)
        self.before, self.after = nn.Identity(), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        tensors = y, self.weight, self.buffer, self.attribute
        for tensor in tensors:
            self.before(tensor)
        for number, tensor in enumerate(tensors, 5):
            getattr(self, self.how)(tensor, float(number))
        for tensor in tensors:
            self.after(tensor)
        return y * 1

    def data(self, tensor: torch.Tensor, number: float) -> None:
        tensor.data = torch.full((3,), number)

    def shape(self, tensor: torch.Tensor, number: float) -> None:
        tensor.data = torch.full((2, 4), number)

    def part(self, tensor: torch.Tensor, number: float) -> None:
        if tensor is not self.weight:
            tensor.fill_(number)
        tensor.data = tensor.data[1:]

    def setting(self, tensor: torch.Tensor, number: float) -> None:
        with torch.no_grad():
            tensor.set_(torch.full((3,), number))

    def writing(self, tensor: torch.Tensor, number: float) -> None:
        tensor.data.fill_(number)

    def by_numpy(self, tensor: torch.Tensor, number: float) -> None:
        tensor.detach().numpy()[:] = number

    def nothing(self, tensor: torch.Tensor, number: float) -> None:
        tensor.detach().numpy()


def shown(trace: Trace, path: str) -> list[tuple[tuple[int, ...], float | None]]:
    given = [call.inputs.args[0] for call in trace.calls if call.path == path]
    return [(value.shape, None if value.stats is None else value.stats.mean) for value in given]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("how", ["data", "shape", "setting", "part"])
def test_a_tensor_that_was_given_other_data_is_another_value(how: str, graph: bool, grad: bool) -> None:
    model = Exchanging(how)
    with torch.set_grad_enabled(grad):
        trace = fx_debug(model, torch.ones(3), graph=graph)
    shape = {"shape": (2, 4), "part": (2,)}.get(how, (3,))
    means = [5.0, 0.0 if how == "part" else 6.0, 7.0, 8.0]
    assert shown(trace, "before") == [((3,), 1.0), ((3,), 0.0), ((3,), 0.0), ((3,), 0.0)]
    assert shown(trace, "after") == [(shape, mean) for mean in means]
    assert not trace.notes
    assert [record.changed for record in trace.parameters] == [True, True]


class Gathered(nn.Module):
    """A tensor whose memory is not there at first."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Identity(), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.ones(4)
        y.untyped_storage().resize_(0)
        self.before(y)
        y.untyped_storage().resize_(16)
        y.numpy()[:] = 3.0
        self.after(y)
        return x * 1


@pytest.mark.parametrize("graph", [False, True])
@torch.no_grad()
def test_memory_that_is_there_only_later_is_measured_when_it_is(graph: bool) -> None:
    trace = fx_debug(Gathered(), torch.ones(4), graph=graph)
    assert shown(trace, "after") == [((4,), 3.0)]
    freed = [] if graph else ["no statistics: a freed tensor has no data"]  # a tape has met it before
    assert [note.what for note in trace.notes] == freed


def test_a_lazy_weight_is_seen_in_the_run_that_makes_it() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(4))
    trace = fx_debug(model, torch.ones(2, 3))
    (lazy,) = trace.find("1")
    assert lazy.status == "verified"
    (operation,) = trace.ops("linear", path="1")
    assert operation.values[0].stats is not None
    record = next(record for record in trace.parameters if record.name == "1.weight")
    assert record.changed and record.stats is not None
    assert_alike(record.stats, measure(model[1].weight))


@pytest.mark.parametrize("how", ["writing", "by_numpy"])
def test_a_write_that_no_version_tells_of_is_found_where_memory_was_shared(how: str) -> None:
    trace = fx_debug(Exchanging(how), torch.ones(3))
    assert [mean for _, mean in shown(trace, "before")] == [1.0, 0.0, 0.0, 0.0]
    assert [mean for _, mean in shown(trace, "after")] == [5.0, 6.0, 7.0, 8.0]
    assert not trace.notes


@pytest.mark.parametrize("how", ["writing", "by_numpy"])
def test_without_a_graph_such_a_write_to_a_weight_is_known_at_the_end_only(how: str) -> None:
    trace = fx_debug(Exchanging(how), torch.ones(3), graph=False)
    assert [mean for _, mean in shown(trace, "before")][1:3] == [None, None]
    assert [mean for _, mean in shown(trace, "after")][1:3] == [None, None]
    said = "was written to in a way that versions do not tell (.data)"
    assert [note.what for note in trace.notes] == [f"no statistics: {name} {said}" for name in ("weight", "buffer")]


class Average(nn.Module):
    """A running average that is written to in both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.ones(4))
        self.given = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average.mul_(2)
        self.given(self.average)
        self.average.data.add_(100)
        return self.given(self.average)


class Reordered(nn.Module):
    """A cache whose rows change places: its statistics stay what they were."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.given = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cache = torch.from_numpy(np.arange(4, dtype=np.float32)) if self.how == "numpy" else x * 1
        self.given(cache)
        if self.how == "inference":
            cache.copy_(cache.flip(0))
        elif self.how == "data":
            cache.data.copy_(cache.flip(0))
        else:
            cache.numpy()[:] = cache.numpy()[::-1].copy()
        return self.given(cache)


def test_a_buffer_that_is_written_to_in_place_and_then_by_its_data(tmp_path: Path) -> None:
    trace = fx_debug(Average(), torch.ones(4), values="tensors", save=tmp_path)
    given = [call.inputs[0] for call in trace.find("given")]
    assert [value.stats.max for value in given] == [2.0, 102.0]
    assert [trace.tensor(value).tolist() for value in given] == [[2.0] * 4, [102.0] * 4]
    assert not trace.notes


@pytest.mark.parametrize("how", ["inference", "data", "numpy"])
def test_elements_that_change_places_are_saved_as_they_are_each_time(how: str, tmp_path: Path) -> None:
    with torch.inference_mode(how == "inference"):
        trace = fx_debug(Reordered(how), torch.arange(4.0), values="tensors", save=tmp_path)
    given = [trace.tensor(call.inputs[0]).tolist() for call in trace.find("given")]
    assert given == [[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]]


def test_what_numpy_only_reads_stays_the_same_value() -> None:
    trace = fx_debug(Exchanging("nothing"), torch.ones(3))

    def given(path: str) -> list[object]:
        return [call.inputs.args[0] for call in trace.calls if call.path == path]

    assert all(one is other for one, other in zip(given("before"), given("after"), strict=True))
    assert not trace.notes


@pytest.mark.parametrize("grad", [False, True])
def test_running_statistics_are_known_before_and_after_each_call_that_writes_to_them(grad: bool) -> None:
    norm = nn.BatchNorm1d(3, momentum=0.5)
    x = torch.tensor([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])
    with torch.set_grad_enabled(grad):
        trace = fx_debug(nn.Sequential(norm, norm), x)
    means = [value.stats.mean for value in trace.values if value.name == "0.running_mean" and value.stats is not None]
    assert means == [0.0, 1.0, pytest.approx(0.5, abs=1e-6)]
    assert not trace.notes
    again = fx_debug(norm.eval(), x)
    assert len([value for value in again.values if value.name == "running_mean"]) == 1
    assert not again.notes


class Owned(nn.Module):
    """A tensor in memory of somebody else's, who writes to it between two calls that are given it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.before, self.after = nn.Identity(), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        array = np.ones(4, dtype=np.float32)
        y = getattr(self, self.how)(array)
        self.before(y)
        array[:] = 3.0
        self.after(y)
        return x + y

    def from_numpy(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)

    def frombuffer(self, array: np.ndarray) -> torch.Tensor:
        return torch.frombuffer(array.data, dtype=torch.float32)

    def dlpack(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_dlpack(array)

    def as_tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array)

    def setting(self, array: np.ndarray) -> torch.Tensor:
        return torch.empty(4).set_(torch.from_numpy(array))

    def a_view(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).view(2, 2)[1:].flatten()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("how", ["from_numpy", "frombuffer", "dlpack", "as_tensor", "setting", "a_view"])
def test_memory_of_somebody_elses_is_measured_whenever_it_is_met(how: str, graph: bool, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        trace = fx_debug(Owned(how), torch.ones(1), graph=graph)
    assert [mean for _, mean in shown(trace, "before")] == [1.0]
    assert [mean for _, mean in shown(trace, "after")] == [3.0]
    assert not trace.notes


def test_an_array_that_is_not_written_to_stays_one_value() -> None:
    class Reading(Owned):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.after(self.before(x))

    trace = fx_debug(Reading(""), torch.from_numpy(np.ones(4, dtype=np.float32)))
    assert len(trace.values) == 1


# Tensors that exchange what they are ---------------------------------------------------------------


@pytest.fixture
def swapping() -> Iterator[None]:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


@pytest.mark.usefixtures("swapping")
@pytest.mark.parametrize("graph", [False, True])
@torch.no_grad()
def test_a_model_that_was_traced_can_be_converted_by_swapping(graph: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    trace = fx_debug(model, torch.ones(2, 3), graph=graph)
    assert not [name for name, tensor in model.state_dict(keep_vars=True).items() if weakref.getweakrefs(tensor)]
    model.half()
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float16}
    if graph:
        assert trace.calls[1].status == "verified"  # explained only now


class Swapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.shows = nn.Linear(3, 3), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = x + 1, x * 10
        for tensor in (one, other, self.linear(x)):
            self.shows(tensor)
        torch.utils.swap_tensors(one, other)
        for tensor in (one, other):
            self.shows(tensor)
        self.linear.double()
        y = self.linear(x.double())
        self.linear.float()
        return one + other + y


@pytest.mark.usefixtures("swapping")
@pytest.mark.parametrize("graph", [False, True])
@torch.no_grad()
def test_tensors_may_be_swapped_while_a_run_is_on(graph: bool) -> None:
    model, x, torchs = Swapping(), torch.ones(2, 3), torch.utils.swap_tensors
    expected = model(x)
    trace = fx_debug(model, x, graph=graph)
    assert torch.utils.swap_tensors is torchs
    assert torch.equal(trace.output, expected)
    means = [mean for _, mean in shown(trace, "shows")]
    assert (means[:2], means[3:]) == ([2.0, 10.0], [10.0, 2.0])
    calls: list[Call] = [call for call in trace.calls if call.path == "linear"]
    assert [call.inputs.args[0].dtype for call in calls] == ["float32", "float64"]
    if graph:
        assert (trace.calls[0].status, trace.calls[0].reason) == ("recorded", "it swaps tensors")


@pytest.mark.usefixtures("swapping")
@torch.no_grad()
def test_tensors_may_be_swapped_in_every_forward_of_a_block(tmp_path: Path) -> None:
    model, x, torchs = Swapping(), torch.ones(2, 3), torch.utils.swap_tensors
    expected = model(x)
    with fxdebug.model_addition_debugger_context(model, str(tmp_path)):
        outputs = [model(x), model(x)]
    assert torch.utils.swap_tensors is torchs
    assert all(torch.equal(output, expected) for output in outputs)


# Whatever a program does ---------------------------------------------------------------------------


class Shows(nn.Module):
    """Keeps copies of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.copies.append(x.detach().clone())
        return x


class AnyProgram(nn.Module):
    """Views, writes, exchanges data and shares memory in an order that a seed decides, and shows tensors in between."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.shows = seed, Shows()
        self.steps = [getattr(self, name) for name in dir(self) if name.startswith("step_")]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.chance = random.Random(self.seed)
        self.tensors, self.arrays = [x + 1, x * 2, torch.arange(6.0), torch.ones(2, 3)], [np.zeros(1)]
        for _ in range(40):
            self.chance.choice(self.steps)(self.chance.choice(self.tensors), float(self.chance.randint(-9, 9)))
        for tensor in self.tensors:
            self.shows(tensor)
        return self.tensors[0] * 1

    def step_view(self, tensor: torch.Tensor, number: float) -> None:
        self.tensors.append(tensor.view(-1) if tensor.is_contiguous() else tensor.T)

    def step_part(self, tensor: torch.Tensor, number: float) -> None:
        self.tensors.append(tensor[tensor.shape[0] // 2 :])

    def step_copy(self, tensor: torch.Tensor, number: float) -> None:
        self.tensors.append(tensor.clone() + number)

    def step_drop(self, tensor: torch.Tensor, number: float) -> None:
        if len(self.tensors) > 4:
            self.tensors.pop(self.chance.randrange(len(self.tensors)))

    def step_write(self, tensor: torch.Tensor, number: float) -> None:
        tensor.add_(number)

    def step_write_detached(self, tensor: torch.Tensor, number: float) -> None:
        tensor.detach().mul_(2)

    def step_write_data(self, tensor: torch.Tensor, number: float) -> None:
        tensor.data.fill_(number)

    def step_exchange_data(self, tensor: torch.Tensor, number: float) -> None:
        tensor.data = torch.full(tuple(tensor.shape), number)

    def step_exchange_shape(self, tensor: torch.Tensor, number: float) -> None:
        tensor.data = torch.full((self.chance.randint(1, 4),), number)

    def step_exchange_for_part(self, tensor: torch.Tensor, number: float) -> None:
        tensor.data = tensor.data[tensor.shape[0] // 2 :]

    def step_set(self, tensor: torch.Tensor, number: float) -> None:
        tensor.set_(torch.full((3,), number))  # type: ignore[call-overload]

    def step_share(self, tensor: torch.Tensor, number: float) -> None:
        self.arrays.append(tensor.detach().numpy())

    def step_write_shared(self, tensor: torch.Tensor, number: float) -> None:
        self.chance.choice(self.arrays)[...] = number

    def step_show(self, tensor: torch.Tensor, number: float) -> None:
        self.shows(tensor)


def assert_alike(one: Stats | None, other: Stats) -> None:
    assert one is not None
    for name, number in dataclasses.asdict(other).items():
        assert getattr(one, name) == (number if number is None else pytest.approx(number, rel=1e-6, abs=1e-9)), name


@pytest.mark.parametrize("values", ["stats", "tensors"])
@pytest.mark.parametrize("seed", range(25))
@torch.no_grad()
def test_every_value_is_what_the_tensor_was_at_that_moment(seed: int, values: str) -> None:
    model = AnyProgram(seed)
    trace = fx_debug(model, torch.ones(2, 3), values=values)
    shown = [call.inputs.args[0] for call in trace.calls if call.path == "shows"]
    for value, copy in zip(shown, model.shows.copies, strict=True):
        assert value.shape == tuple(copy.shape)
        assert_alike(value.stats, measure(copy))
        if values == "tensors":
            assert torch.equal(trace.tensor(value), copy)


@pytest.mark.parametrize("norm", ["batch", "instance", "module"])
def test_running_statistics_that_nobody_registered_are_what_they_are(norm: str) -> None:
    """Torch writes to them without a version telling."""

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.means: list[float] = []

        def forward(self, mean: torch.Tensor) -> None:
            self.means.append(float(mean.double().mean()))

    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.looks = Looks()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean, variance = torch.zeros(6), torch.ones(6)
            if norm == "module":
                made = nn.BatchNorm1d(6)
                mean = made.running_mean
            self.looks(mean)
            if norm == "batch":
                torch.nn.functional.batch_norm(x, mean, variance, training=True)
            elif norm == "instance":
                torch.nn.functional.instance_norm(x[..., None].expand(-1, -1, 2), mean, variance, use_input_stats=True)
            else:
                made(x)
            self.looks(mean)
            return x + 1

    model = Norms()
    with torch.no_grad():
        trace = fxdebug.fx_debug(model, torch.randn(5, 6) + 2)
    found = [call.inputs[0].stats.mean for call in trace.find("looks")]
    assert found == pytest.approx(model.looks.means) and found[0] == 0 and found[1] > 0.1
