"""Run two subjects in turn and time both: what the machine does meanwhile, it does to both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.probe import gc_paused, members, named_tensors
from fxdebug.features.shared.tried_settings.peak import PeakOfStorages
from fxdebug.features.shared.tried_settings.subject import Subject

Clock: TypeAlias = Literal["wall", "processor"]
CLOCKS: dict[Clock, Callable[[], int]] = {"wall": time.perf_counter_ns, "processor": time.process_time_ns}
SHORT = 3_000_000  # nanoseconds: a step that takes less is run several times for one reading
MOST = 64  # steps of one reading


@dataclass(frozen=True)
class Outcome:
    """The first step of a subject: its tensors by name (of the output, the loss, gradients), its time and its peak."""

    tensors: dict[str, Tensor]
    first: int
    peak: int | None


def first_step(subject: Subject, *, peak: bool = True) -> Outcome:
    """Run a subject for the first time, and once more to measure its peak of memory; return what came out."""
    seconds, tensors = _step(subject, keep=True)
    most = _peak(subject) if peak else None
    return Outcome(tensors, seconds, most)


def _step(
    subject: Subject, *, keep: bool = False, steps: int = 1, clock: Clock = "wall"
) -> tuple[int, dict[str, Tensor]]:
    device = members.device_of(subject.model, (subject.args, dict(subject.kwargs)))
    inputs = [subject.inputs() for _ in range(steps)]
    tensors: dict[str, Tensor] = {}
    with subject.unchanged() as restore:
        restore()
        with subject.settings():
            _wait(device)
            now = CLOCKS[clock]
            begin = now()
            for one in inputs:
                output, loss = subject.step(one)
            _wait(device)
            spent = now() - begin
        if keep:
            found = dict(named_tensors(output))
            tensors = {f"output{name}": tensor.detach().clone() for name, tensor in found.items()}
            if loss is not None:
                tensors["loss"] = loss.clone()
                for name, parameter in members.named_parameters_of(subject.model):
                    if parameter.grad is not None and name not in subject.untrained:  # nobody reads those
                        gradient = parameter.grad.detach()
                        tensors[f"gradient of {name}"] = gradient.to_dense() if gradient.is_sparse else gradient.clone()
    return spent, tensors


def paired(base: Subject, other: Subject, pairs: int, clock: Clock = "wall") -> tuple[list[int], list[int]]:
    """Return the nanoseconds of a step of each, from ``pairs`` readings in turn: base first, then the other first.

    The ``processor`` clock goes on only while this process works, in any of its threads: on a machine with other work
    it tells the cost of a step, but nothing of threads and of waiting.
    """
    once = max(1, min(_step(base, clock=clock)[0], _step(other, clock=clock)[0]))
    steps = max(1, min(MOST, SHORT // once))
    times: tuple[list[int], list[int]] = [], []
    with gc_paused():
        for number in range(pairs):
            for side in (0, 1) if number % 2 else (1, 0):
                spent, _ = _step((base, other)[side], steps=steps, clock=clock)
                times[side].append(max(1, spent // steps))
    return times


def _wait(device: torch.device) -> None:
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)


def _peak(subject: Subject) -> int | None:
    """Return the most bytes that a step takes above what was there; ``None`` where it cannot be measured."""
    device = members.device_of(subject.model, (subject.args, dict(subject.kwargs)))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        _step(subject)
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return None
    if subject.call is not None:  # compiled: its kernels share memory that no operation returns
        return None
    with PeakOfStorages() as seen:
        _step(subject)
    return seen.most
