"""Repeat a model's run and time it: plainly, with every call timed, and with every operation timed.

The three are interleaved, so that a machine that becomes slower does so for all of them. Each repeat starts from the
same random numbers, buffers and inputs. Nothing is recorded: times of a traced run would be those of the tracing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import Attached, Sites, deep_copy, gc_paused, members, state_restored
from fxdebug.data.measured.timings import CallKey, OpTiming, RegionTiming, Span, Timings, median_run
from fxdebug.errors import UsageError, first_line, with_article
from fxdebug.features.shared.times.call_times import CallTimes, Clock, CpuClock, DeviceClock
from fxdebug.features.shared.times.device_use import DeviceUse
from fxdebug.features.shared.times.op_times import OpTimes

__all__ = ["CallTimes", "Loss", "TimedRuns", "scalar_loss"]

Loss = Callable[[Any], Tensor]


class TimedRuns:
    """Repeats of one model's run on the same inputs; ``loss`` makes of its output the scalar to differentiate.

    ``clock`` is that of the device unless another is given.

    >>> timings, raised = TimedRuns(nn.ReLU(), nn.ReLU(), (torch.ones(2),), {}, None).run(repeats=3, warmup=1)
    >>> len(timings.plain), raised
    (3, None)
    """

    def __init__(
        self,
        target: Callable[..., Any],
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        loss: Loss | None,
        clock: Clock | None = None,
    ) -> None:
        self._target, self._model, self._loss = target, model, loss
        self._inputs = args, dict(kwargs)
        self._spans: list[list[Span]] = []  # of every repeat
        self._sites = Sites(model)
        self.device = members.device_of(model, (args, kwargs))
        self._clock = clock or (CpuClock() if self.device.type in ("cpu", "meta") else DeviceClock(self.device))

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a copy of the inputs: the model may write into them."""
        args, kwargs = deep_copy(self._inputs)
        return args, kwargs

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[Callable[[], None]]:
        """Restore random generators, buffers, attributes and gradients after the block; yield what does so before."""
        with state_restored(self._model) as restore:
            yield restore

    def run(self, repeats: int, warmup: int) -> tuple[Timings, Exception | None]:
        """Run the model ``warmup + 3 · repeats`` times; return the times, and the exception that ended the runs early.

        The model is then as before. Raises ``UsageError`` for a loss that is no scalar with a gradient.
        """
        timings = Timings()
        use = DeviceUse(self.device)
        timings.device_use, timings.no_device_use = use.samples, use.missing
        with state_restored(self._model) as restore, gc_paused(), use:
            try:
                self._repeat(timings, repeats, warmup, restore)
            except UsageError:
                raise
            except Exception as error:
                timings.error = f"{type(error).__name__}: {first_line(error)}"
                restore()
                if not timings.calls:
                    with contextlib.suppress(Exception):  # the same again: the calls until then are timed
                        self._time_calls(timings)
                timings.spans = median_run(self._spans)
                return timings, error
        timings.no_device_use = use.missing
        return timings, None

    def _repeat(self, timings: Timings, repeats: int, warmup: int, restore: Callable[[], None]) -> None:
        for _ in range(warmup):
            restore()
            self._plain(Timings())
        for _ in range(repeats):
            restore()
            self._plain(timings)
            restore()
            self._time_calls(timings)
            restore()
            self._time_ops(timings)
        timings.spans = median_run(self._spans)

    def _plain(self, timings: Timings) -> None:
        args, kwargs = deep_copy(self._inputs)
        self._wait()
        processor, begin = time.process_time_ns(), time.perf_counter_ns()
        output = self._target(*args, **kwargs)
        self._wait()
        end = time.perf_counter_ns()
        timings.plain.append(end - begin)
        timings.processor.append(time.process_time_ns() - processor)
        if self._loss is None:
            return
        begin = time.perf_counter_ns()
        loss = scalar_loss(self._loss, output)
        self._wait()
        timings.loss.append(time.perf_counter_ns() - begin)
        begin = time.perf_counter_ns()
        loss.backward()
        self._wait()
        timings.backward.append(time.perf_counter_ns() - begin)

    def _time_calls(self, timings: Timings) -> None:
        times = CallTimes(self._sites, self._clock)
        args, kwargs = deep_copy(self._inputs)
        self._wait()
        try:
            with Attached(times, self._sites):
                begin = time.perf_counter_ns()
                self._target(*args, **kwargs)
                self._wait()
                timings.watched.append(time.perf_counter_ns() - begin)
        finally:
            self._note_calls(times, timings)

    def _note_calls(self, times: CallTimes, timings: Timings) -> None:
        timings.elsewhere = max(timings.elsewhere, times.elsewhere)
        calls = times.calls
        spent = [self._clock.nanoseconds(call.begin, call.end) for call in calls]
        own = list(spent)
        for call, total in zip(calls, spent):
            if call.parent is not None:
                own[call.parent] -= total
        own_with_regions = self._own_times(times, spent, timings)
        for position, (call, total) in enumerate(zip(calls, spent)):
            key = call.path, call.number
            if call.is_region:
                region = timings.regions.setdefault(key, RegionTiming(_key(times, times.module_call(position))))
                region.total.append(total)
                region.own.append(max(0, own[position]))
                continue
            timings.calls.setdefault(key, []).append(total)
            timings.own.setdefault(key, []).append(own_with_regions[position])
        if calls:
            since = partial(self._clock.nanoseconds, calls[0].begin)
            self._spans.append([Span(c.path, c.number, since(c.begin), since(c.end), c.depth) for c in calls])

    def _own_times(self, times: CallTimes, spent: Sequence[int], timings: Timings) -> list[int]:
        """Return the time of each call without calls in it, regions included, and note the least."""
        own = list(spent)
        for call, total in zip(times.calls, spent):
            caller = times.module_call(call.parent)
            if caller is not None and not call.is_region:
                own[caller] -= total
        own = [max(0, each) for each in own]
        for call, least in zip(times.calls, own):
            key = call.path, call.number
            timings.least[key] = min(least, timings.least.get(key, least))
        return own

    def _time_ops(self, timings: Timings) -> None:
        calls = CallTimes(self._sites, self._clock)
        ops = OpTimes(calls, self._clock, backward=self._loss is not None)
        calls.around = ops.around
        args, kwargs = deep_copy(self._inputs)
        try:
            with Attached(calls, self._sites), ops:
                output = self._target(*args, **kwargs)
            if self._loss is not None:
                scalar_loss(self._loss, output).backward()
        finally:
            ops.forget()
            missed = (*calls.guard.texts(), *ops.guard.texts())
            timings.notes += [text for text in dict.fromkeys(missed) if text not in timings.notes]
        self._own_times(calls, [self._clock.nanoseconds(call.begin, call.end) for call in calls.calls], timings)
        positions: dict[CallKey, int] = {}
        backward: dict[CallKey, int] = {}  # of regions
        for op in ops.ops:
            key = _key(calls, calls.module_call(op.call))
            if op.call is None:
                continue
            spent = sum(self._clock.nanoseconds(a, b) for a, b in op.backward)
            inside: int | None = op.call
            while inside is not None:
                if calls.calls[inside].is_region:
                    region = _key(calls, inside)
                    backward[region] = backward.get(region, 0) + spent
                inside = calls.calls[inside].parent
            known = timings.ops.setdefault(key, [])
            position = positions[key] = positions.get(key, -1) + 1
            if position == len(known):
                known.append(OpTiming(op.name))
            timing = known[position]
            if timing.name != op.name:  # another way through the code: these operations are not the same
                continue
            timing.forward.append(self._clock.nanoseconds(op.begin, op.end))
            if self._loss is not None:
                timing.backward.append(spent)
        if self._loss is not None:
            for region, spent in backward.items():
                if region in timings.regions:
                    timings.regions[region].backward.append(spent)

    def _wait(self) -> None:
        if self.device.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(self.device)


def _key(times: CallTimes, position: int | None) -> CallKey:
    """Return the key of a call or region; of the whole model's call where there is none."""
    return ("", 0) if position is None else (times.calls[position].path, times.calls[position].number)


def scalar_loss(loss: Loss, output: Any, *, cut: bool = False) -> Tensor:
    """Return the loss of an output. Raises ``UsageError`` where it is not one number with a gradient.

    With ``cut`` a loss without a gradient, cut off from what it was computed of, is returned, too.

    >>> scalar_loss(lambda out: out.sum(), torch.ones(2, requires_grad=True)).item()
    2.0
    """
    value = loss(output)
    if not isinstance(value, Tensor) or value.numel() != 1 or not (cut or value.requires_grad):
        got = with_article(type(value).__name__)
        if isinstance(value, Tensor):
            got = f"a tensor of shape {tuple(value.shape)}" + ("" if value.requires_grad else " without a gradient")
        raise UsageError(f"loss returned {got}: let it return one number with a gradient, such as out.logits.mean()")
    return value
