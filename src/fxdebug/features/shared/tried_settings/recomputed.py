"""The knob that keeps what a backward needs, where checkpointing computes it again."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint

from fxdebug.capture.probe import UserLines, members, patch
from fxdebug.features.shared.records.recomputed import RecomputedForward
from fxdebug.features.shared.tried_settings.knobs import Try, knob
from fxdebug.features.shared.tried_settings.process_knobs import put
from fxdebug.features.shared.tried_settings.subject import Subject

_FLAGS = ("gradient_checkpointing", "use_checkpoint", "checkpointing", "use_checkpointing", "grad_checkpointing")


@knob("recomputation")
def recomputation(subject: Subject) -> Iterator[Try]:
    """Keep what the backward needs instead of computing it again."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        for copy, name in _switched(subject.model):
            setattr(copy, name, False)
        return subject.within(lambda: kept(Kept()))

    if subject.loss is not None and (_switched(subject.model) or recomputed(subject) is not None):
        yield Try("no recomputation", "switch checkpointing off where the memory is there", prepare)


def _switched(model: nn.Module) -> list[tuple[nn.Module, str]]:
    found = [(module, name) for module in members.modules_of(model) for name in _FLAGS]
    return [(module, name) for module, name in found if vars(module).get(name) is True]


def recomputed(subject: Subject) -> RecomputedForward | None:
    """Return what a backward would compute again of a forward, which is run twice for that; ``None`` where nothing."""
    _kept_forward(subject)  # the first call of ``checkpoint`` imports much
    calls, seconds, size = _kept_forward(subject)
    if not calls.count or not seconds:
        return None
    device = members.device_of(subject.model, (subject.args, dict(subject.kwargs)))
    line = None if calls.asks is None else calls.asks()
    return RecomputedForward(calls.count, line, calls.seconds / seconds, size, _free(device))


def _kept_forward(subject: Subject) -> tuple[Kept, float, int]:
    """Run a forward whose checkpoints keep all; return their calls, its seconds, and the bytes that they keep."""
    calls, sizes, seconds = Kept(), dict[int, int](), 0.0
    weights = {id(one) for one in members.parameters_of(subject.model)}
    alive: list[Any] = []

    def save(tensor: Tensor) -> Tensor:
        if calls.open and id(tensor) not in weights and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            alive.append(storage)  # no two have one address
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with contextlib.suppress(Exception), subject.unchanged() as restore:  # it is passed on by the first step
        restore()
        args, kwargs = subject.inputs()
        with torch.enable_grad(), subject.settings(), kept(calls), saved_tensors_hooks(save, lambda tensor: tensor):
            begin = time.perf_counter()
            subject.model(*args, **kwargs)
            seconds = time.perf_counter() - begin
    return calls, seconds, sum(sizes.values())


def _free(device: torch.device) -> int | None:
    """Return the bytes that a machine has free for a model on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(told["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # a system that does not tell
        return None


@dataclass
class Kept:
    """The calls of ``checkpoint`` in a forward: how many, their seconds, and who asked for the first."""

    count: int = 0
    seconds: float = 0.0
    open: int = 0
    asks: Callable[[], str | None] | None = None

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count and time one call; those in it are of it."""
        self.count += 1
        self.open += 1
        if self.asks is None:
            self.asks = UserLines().asking(sys._getframe(2))
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.open -= 1
            self.seconds += time.perf_counter() - begin if not self.open else 0.0


@contextlib.contextmanager
def kept(calls: Kept) -> Iterator[None]:
    """Let ``torch.utils.checkpoint`` keep what it would compute again; note its calls in ``calls``."""

    def without_recomputing(*_: Any, **__: Any) -> Iterator[None]:
        with calls.call():
            yield  # here the forward runs, as it does in torch's own generator

    def of_reentrant(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        with calls.call():
            return function(*args)

    name = "_checkpoint_without_reentrant_generator"
    with contextlib.ExitStack() as stack:
        generator = patch.Attribute(
            "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
            checkpoint,
            name,
            lambda _: without_recomputing,
        )
        stack.enter_context(put(generator))
        reentrant = patch.Attribute(
            "torch.utils.checkpoint.CheckpointFunction.apply",
            checkpoint.CheckpointFunction,
            "apply",
            lambda _: staticmethod(of_reentrant),
        )
        stack.enter_context(put(reentrant))
        yield
