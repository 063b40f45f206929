"""What happens to tensors on an accelerator: here the CPU stands in for one.

``is_off_cpu`` is made to say that tensors are on an accelerator, so that all of the code for devices runs on them;
whatever would make a host wait for its device is counted from the model's first line to the end of the run.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.capture.tensors import stats_queue, tensor_state, value_table
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.data.values import Stats
from fxdebug.native import dispatch
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
        dispatch.using(None),  # the native core asks no function of Python's where a tensor is
        mock.patch.object(ValueTable, "finish_stats", finish_stats),
        mock.patch.object(torch.Tensor, "cpu", counted("cpu", cpu)),
        mock.patch.object(torch.Tensor, "tolist", counted("tolist", tolist)),
        mock.patch.object(cpu_sums, "array_of", counted("memory was read", array_of)),
        mock.patch.object(stats_queue, "is_off_cpu", lambda tensor: far),
        mock.patch.object(value_table, "is_off_cpu", lambda tensor: far),
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


# Writes that no version tells ---------------------------------------------------------------------


def doubled_by_address(x: torch.Tensor, out: torch.Tensor) -> None:
    """Write as a kernel of Triton, or of an extension, does: all it gets are addresses."""
    source, target = (np.ctypeslib.as_array((ctypes.c_float * x.numel()).from_address(t.data_ptr())) for t in (x, out))
    np.multiply(source, 2, out=target)


class Doubles(nn.Module):
    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place, self.view = in_place, nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        out = x.clone() if self.in_place else torch.empty_like(x)
        part = out[:1]
        before = self.view(out)
        doubled_by_address(x, out)
        return before, self.view(out), self.view(part)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("far", [True, False])
def test_what_a_kernel_wrote_by_its_address_is_measured_after_it(in_place: bool, far: bool) -> None:
    x = torch.arange(1.0, 9.0)
    trace, counts = traced(Doubles(in_place), x, far)
    _, after, part = (call.outputs[0].stats.mean for call in trace.find("body.view"))
    assert (after, part) == (9.0, 2.0)
    assert [value.stats.mean for value in trace.find("body")[0].outputs] == [9.0, 9.0, 2.0]
    assert trace.find("body")[0].status == "recorded"
    assert not far or counts == {"fetched": 1}


class Replays(nn.Module):
    """Replays a CUDA graph, which writes to memory of its own each time."""

    def __init__(self) -> None:
        super().__init__()
        self.made = torch.zeros(4)
        self.static, self.after = self.made.view(2, 2), nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        results = []
        for _ in range(2):
            torch.cuda.CUDAGraph.replay(self)  # type: ignore[arg-type]
            results.append(self.after(self.static).clone())
        return results


def test_what_a_replayed_graph_wrote_is_measured_anew_and_no_graph_is_verified(monkeypatch) -> None:
    model = Replays()
    memory = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(model.made.data_ptr()))

    def replay(self: Replays) -> None:
        memory[:] += 1

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replay)
    trace, _ = traced(model, torch.ones(1))
    assert [call.inputs[0].stats.mean for call in trace.find("body.after")] == [1.0, 2.0]
    body = trace.find("body")[0]
    assert (body.status, body.reason) == ("recorded", "it replays a CUDA graph, whose operations are not seen")


# While a CUDA graph is captured --------------------------------------------------------------------


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    with (
        mock.patch.object(torch.cuda, "is_initialized", lambda: True),
        mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True),
    ):
        yield


class Captures(nn.Module):
    """Captures a part of its forward, as engines do in their first call."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(2, 2), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cuda.CUDAGraph.capture_begin(self)  # type: ignore[arg-type]
        with capturing():
            x = self.inside(x) + 1
        return self.outside(x)


def test_what_is_captured_is_left_alone_and_the_rest_is_recorded(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", lambda self: None)
    measured: list[bool] = []
    add = accelerator.DeviceBatch.add
    monkeypatch.setattr(
        accelerator.DeviceBatch, "add", lambda *given: (measured.append(accelerator.captures_graph()), add(*given))[1]
    )
    trace, _ = traced(Captures(), torch.ones(1, 2))
    assert measured and not any(measured)
    assert [call.path for call in trace.calls] == ["", "body", "body.outside"]
    assert (trace.calls[1].status, trace.calls[1].reason) == ("recorded", "it captures a CUDA graph")
    assert trace.find("body.outside")[0].outputs[0].stats is not None
    assert [note.what for note in trace.notes] == ["a CUDA graph is captured in it: the calls inside are not recorded"]


def test_a_run_that_is_captured_as_a_whole_says_that_nothing_of_it_is_recorded() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)
    with capturing():
        trace = fx_debug(model, x)
    assert [(call.path, call.outputs) for call in trace.calls] == [("", None)]
    assert [note.what for note in trace.notes] == ["this run is captured as a CUDA graph: its calls are not recorded"]
    with capturing(), fxdebug.trace_forwards(model) as traces:
        model(x)
    assert [[note.what for note in trace.notes] for trace in traces] == [[note.what for note in trace.notes]]


def test_a_training_step_that_is_captured_is_not_watched_and_the_watch_says_so(tmp_path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torch.enable_grad(), fxdebug.watch(model, optimizer, every=1, save=tmp_path / "run") as watched:
        for captured in (False, True, False):
            with capturing() if captured else contextlib.nullcontext():
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
    report = watched.report()
    assert report.totals["steps"] == (2, "")
    assert [note.what for note in report.notes] == [
        "a forward was captured as a CUDA graph: steps that replay it are not seen"
    ]


def test_without_a_device_that_answers_the_trace_up_to_the_exception_is_there(monkeypatch) -> None:
    def lost(*args: Any) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    class Asserts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
            monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
            monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
            monkeypatch.setattr(torch.cuda, "get_rng_state_all", lost)
            raise lost()

    with pytest.raises(RuntimeError, match="device-side assert"):
        fx_debug(Asserts(), torch.ones(2))
    last = fxdebug.last_failed()
    assert last is not None and [call.status for call in last.find("first")] == ["verified"]


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
