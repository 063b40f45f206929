"""Repeat a model's run and time it: plainly, with every call timed, and with every operation timed.

The three are interleaved, so that a machine that becomes slower does so for all of them. Each repeat starts from the
same random numbers, buffers and inputs. Nothing is recorded: times of a traced run would be those of the tracing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probes.call_times import CallTimes, Clock, CpuClock, DeviceClock
from fxdebug.capture.probes.op_times import OpTimes
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.replay.pause_gc_and_threads import gc_paused
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.same_start import copied_inputs, state_restored
from fxdebug.data.timings import OpTiming, Span, Timings
from fxdebug.errors import UsageError

Loss = Callable[[Any], Tensor]


class TimedRuns:
    """Repeats of one model's run on the same inputs; ``loss`` makes of its output the scalar to differentiate."""

    def __init__(
        self,
        target: Callable[..., Any],
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        loss: Loss | None,
    ) -> None:
        self._target, self._model, self._loss = target, model, loss
        self._inputs = args, dict(kwargs)
        self._sites = Sites(model)
        self.device = device_of(model, (args, kwargs))
        self._clock: Clock = CpuClock() if self.device.type == "cpu" else DeviceClock(self.device)

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a copy of the inputs: the model may write into them."""
        args, kwargs = copied_inputs(self._inputs)
        return args, kwargs

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restore random generators, buffers, attributes and gradients of the model after the block."""
        with state_restored(self._model), _gradients_restored(self._model):
            yield

    def run(self, repeats: int, warmup: int) -> Timings:
        """Run the model ``warmup + 3 · repeats`` times and return the times; the model is then as before.

        Exceptions of the model pass through. Raises ``UsageError`` for a loss that is no scalar with a gradient.
        """
        timings = Timings()
        with state_restored(self._model) as restore, _gradients_restored(self._model), gc_paused():
            for _ in range(warmup):
                restore()
                self._plain()
            for _ in range(repeats):
                restore()
                forward, backward = self._plain()
                timings.plain.append(forward)
                timings.backward += [] if backward is None else [backward]
                restore()
                self._time_calls(timings)
                restore()
                self._time_ops(timings)
        return timings

    def _plain(self) -> tuple[int, int | None]:
        args, kwargs = copied_inputs(self._inputs)
        self._wait()
        begin = time.perf_counter_ns()
        output = self._target(*args, **kwargs)
        self._wait()
        end = time.perf_counter_ns()
        if self._loss is None:
            return end - begin, None
        loss = scalar_loss(self._loss, output)
        self._wait()
        start = time.perf_counter_ns()
        loss.backward()
        self._wait()
        return end - begin, time.perf_counter_ns() - start

    def _time_calls(self, timings: Timings) -> None:
        times = CallTimes(self._sites, self._clock)
        args, kwargs = copied_inputs(self._inputs)
        self._wait()
        with Attached(times, self._sites):
            begin = time.perf_counter_ns()
            self._target(*args, **kwargs)
            self._wait()
            timings.watched.append(time.perf_counter_ns() - begin)
        timings.elsewhere = max(timings.elsewhere, times.elsewhere)
        inside = [0] * len(times.calls)
        spent = [self._clock.nanoseconds(call.begin, call.end) for call in times.calls]
        for call, total in zip(times.calls, spent):
            if call.parent is not None:
                inside[call.parent] += total
        for call, total, below in zip(times.calls, spent, inside):
            timings.calls.setdefault((call.path, call.number), []).append(total)
            timings.own.setdefault((call.path, call.number), []).append(max(0, total - below))
        if times.calls:
            since = partial(self._clock.nanoseconds, times.calls[0].begin)
            timings.spans = [Span(c.path, c.number, since(c.begin), since(c.end), c.depth) for c in times.calls]

    def _time_ops(self, timings: Timings) -> None:
        calls = CallTimes(self._sites, self._clock)
        ops = OpTimes(calls, self._clock, backward=self._loss is not None)
        calls.around = ops.around
        args, kwargs = copied_inputs(self._inputs)
        try:
            with Attached(calls, self._sites), ops:
                output = self._target(*args, **kwargs)
            if self._loss is not None:
                scalar_loss(self._loss, output).backward()
        finally:
            ops.forget()
        positions: dict[int, int] = {}
        for op in ops.ops:
            if op.call is None:
                continue
            call = calls.calls[op.call]
            known = timings.ops.setdefault((call.path, call.number), [])
            position = positions[op.call] = positions.get(op.call, -1) + 1
            if position == len(known):
                known.append(OpTiming(op.name))
            timing = known[position]
            if timing.name != op.name:  # another way through the code: these operations are not the same
                continue
            timing.forward.append(self._clock.nanoseconds(op.begin, op.end))
            if self._loss is not None:
                timing.backward.append(sum(self._clock.nanoseconds(a, b) for a, b in op.backward))

    def _wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)


def scalar_loss(loss: Loss, output: Any) -> Tensor:
    """Return the loss of an output. Raises ``UsageError`` where it is not one number with a gradient."""
    value = loss(output)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        got = f"a {type(value).__name__}"
        if isinstance(value, Tensor):
            got = f"a tensor of shape {tuple(value.shape)}" + ("" if value.requires_grad else " without a gradient")
        raise UsageError(f"loss returned {got}: let it return one number with a gradient, such as out.logits.mean()")
    return value


def device_of(model: nn.Module, inputs: Any) -> torch.device:
    """Return the device that does the work: that of the first parameter, buffer or tensor among the inputs."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    pending = [inputs]
    while pending:
        item = pending.pop()
        if isinstance(item, Tensor):
            return item.device
        if isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, (tuple, list)):
            pending += item
    return torch.device("cpu")


@contextlib.contextmanager
def _gradients_restored(model: nn.Module) -> Iterator[None]:
    """Let backward passes write gradients of their own, and put the model's own back."""
    parameters = list(model.parameters())
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, before):
            parameter.grad = gradient
