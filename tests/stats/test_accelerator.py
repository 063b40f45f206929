"""What happens to tensors on an accelerator: here the CPU stands in for one.

``is_off_cpu`` is made to say that tensors are on an accelerator, so that all of the code for devices runs on them;
whatever would make a host wait for its device is counted from the model's first line to the end of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from torch import nn

from fxdebug import Trace, fx_debug
from fxdebug.capture.tensors import stats_queue, tensor_state
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.data.values import Stats
from fxdebug.native import ways
from fxdebug.stats import accelerator, cpu_sums
from fxdebug.stats.measure import flat_of, measure
from support.measured import COMPLEX, FLOATS, INTEGERS, SHAPES_OF_DATA, assert_close, exact, listed, precision, tensors
from support.sweep import examples

WAITING = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero", "aten::equal")


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Watched(nn.Module):
    """Counts, from its first line until the statistics are fetched, what waits for a device."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.counts: Counter[str] = Counter()

    def forward(self, x: torch.Tensor) -> Any:
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self.profile.start()
        return self.body(x)

    def stop_counting(self) -> None:
        self.profile.stop()
        self.counts.update({event.key: event.count for event in self.profile.key_averages() if event.key in WAITING})
        del self.profile


def traced(body: nn.Module, x: torch.Tensor, far: bool = True, **options: Any) -> tuple[Trace, Counter[str]]:
    """A trace, and what waited for the device during the run; ``fetched`` are the copies to the host after it."""
    model = Watched(body)
    original, array_of, cpu, tolist = ValueTable.finish_stats, cpu_sums.array_of, torch.Tensor.cpu, torch.Tensor.tolist
    running = True

    def finish_stats(self: ValueTable) -> None:
        nonlocal running
        if running:
            running = False
            model.stop_counting()
        original(self)

    def counted(name: str, original: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            if hasattr(model, "profile"):
                model.counts[name] += 1
            elif not running and name == "cpu":
                model.counts["fetched"] += 1
            return original(*args, **kwargs)

        return method

    with (
        ways.using(None),  # the native core asks no function of Python's where a tensor is
        mock.patch.object(ValueTable, "finish_stats", finish_stats),
        mock.patch.object(torch.Tensor, "cpu", counted("cpu", cpu)),
        mock.patch.object(torch.Tensor, "tolist", counted("tolist", tolist)),
        mock.patch.object(cpu_sums, "array_of", counted("memory was read", array_of)),
        mock.patch.object(stats_queue, "is_off_cpu", lambda tensor: far),
        mock.patch.object(tensor_state, "is_off_cpu", lambda tensor: far),
        mock.patch.dict(tensor_state._layouts, clear=True),
    ):
        trace = fx_debug(model, x, weights=False, **options)
    return trace, model.counts


class Mixed(nn.Module):
    """Floats of several sizes and dtypes, views, integers, a mask, a write in place, NaN and an empty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16), nn.Identity()])

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        mask = x > 0
        half = self.layers[3](x.to(torch.bfloat16))
        order = self.layers[3](x.argsort(-1))
        x = x.masked_fill(mask, torch.nan)
        x = self.layers[3](x).mul_(2)
        turned = self.layers[3](x.t())
        return self.layers[3](x[:0]), half, order, mask, turned, x.unsqueeze(0).expand(3, -1, -1), x.to(torch.complex64)


def test_no_value_crosses_to_the_host_while_the_model_runs_and_all_come_in_one_copy() -> None:
    for options in ({"graph": False}, {"graph": True}):
        trace, counts = traced(Mixed(), torch.randn(32, 16), **options)
        assert counts == {"fetched": 1}, options
        assert [value for value in trace.values if value.stats is None and value.name is None] == []


def test_the_count_sees_what_is_measured_on_the_way() -> None:
    _, counts = traced(Mixed(), torch.randn(300, 300, 16).view(-1, 16), far=False, graph=False)
    assert counts["aten::_local_scalar_dense"] > 10 and counts["memory was read"] > 5
    assert "fetched" not in counts


def test_a_run_on_an_accelerator_has_the_statistics_of_one_on_the_cpu() -> None:
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
    model = Mixed()
    far, near = (traced(model, x, far)[0] for far in (True, False))
    assert [value.label for value in far.values] == [value.label for value in near.values]
    for ours, true in zip(far.values, near.values):
        if true.name is not None:
            assert ours.stats is true.stats is None  # weights, which were not asked for
            continue
        assert ours.stats is not None and true.stats is not None
        if isinstance(true.stats.mean, complex):
            assert ours.stats == true.stats
        else:
            assert_close(ours.stats, true.stats, 2.0**-23)


def test_under_inference_mode_values_are_told_apart_by_their_numbers_all_the_same() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.relu_(self.first(x))

        def __init__(self) -> None:
            super().__init__()
            self.first, self.act = nn.Identity(), nn.ReLU(inplace=True)

    with torch.inference_mode():
        trace, _ = traced(Writes(), torch.tensor([-1.0, 2.0]).clone(), graph=False)
    values = {call.path: next(iter(call.outputs)) for call in trace.calls if call.outputs is not None}
    before, after = values["body.first"], values["body"]
    assert before.stats is not None and after.stats is not None
    assert (before.stats.min, after.stats.min) == (-1.0, 0.0)


# The arithmetic ----------------------------------------------------------------------------------


def there(tensor: torch.Tensor) -> Stats:
    flat, repeats = flat_of(tensor)
    return accelerator.measure_now(flat, repeats) if flat.numel() else measure(tensor)


@given(tensors(FLOATS))
@settings(max_examples=examples(75, 150), deadline=None)
def test_floats_are_measured_as_exactly_as_on_the_cpu(tensor) -> None:
    assert_close(there(tensor), exact(listed(tensor)), precision(tensor.dtype))


@pytest.mark.parametrize("kind", SHAPES_OF_DATA)
def test_many_elements_are_measured_as_on_the_cpu(kind) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    for size in (1 << 17, accelerator.ROW + 5, 2 * accelerator.ROW):
        tensor = torch.from_numpy(SHAPES_OF_DATA[kind](rng, size)).to(torch.float32)
        assert_close(there(tensor), measure(tensor), 2.0**-22)


def test_without_float64_on_the_device_the_digits_are_those_of_float32() -> None:
    """As on MPS; the sums of rows are then made 1024 numbers at a time."""
    tensor = 5 + 1e-3 * torch.randn(100_003, generator=torch.Generator().manual_seed(0))
    row = accelerator.row_sums(tensor.view(1, -1), torch.float32)
    assert row.dtype is torch.float32
    assert_close(accelerator._stats(tensor.numel(), row[0].tolist()), measure(tensor), 2.0**-23)


def test_tensors_wait_as_they_were_when_they_were_taken() -> None:
    found: list[Stats] = []
    batch = accelerator.DeviceBatch()
    tensor = torch.ones(4)
    batch.add(tensor, 1, found.append)
    tensor.zero_()
    assert found == []
    batch.fetch()
    assert found == [Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0)]


def test_more_than_there_is_room_for_is_measured_on_the_way() -> None:
    batch, found = accelerator.DeviceBatch(), {}
    sizes = [1, 3, 3, 1000, accelerator.ROW - 1, accelerator.ROW, accelerator.ROW + 1] * 7
    for number, size in enumerate(sizes):
        batch.add(torch.full((size,), float(number)), 1, lambda stats, number=number: found.update({number: stats}))
        assert batch._used <= accelerator.ROOM
    batch.fetch()
    assert {number: (stats.count, stats.mean) for number, stats in found.items()} == {
        number: (size, float(number)) for number, size in enumerate(sizes)
    }


@pytest.mark.parametrize("dtype", [*INTEGERS, *COMPLEX])
def test_other_dtypes_come_over_as_they_are(dtype) -> None:
    from fxdebug.stats.measure import measure_on_device

    for tensor in (torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype), torch.ones(1).to(dtype).expand(4)):
        batch, found = accelerator.DeviceBatch(), []
        batch.add(torch.ones(3), 1, found.append)
        assert measure_on_device(tensor, batch, found.append)
        batch.fetch()
        assert found[1] == measure(tensor)
