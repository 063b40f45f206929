"""The knob that keeps what a backward needs, where checkpointing computes it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import checkpoint

from fxdebug.capture.hooks.patch import Attribute
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.capture.trials.knobs import Try, knob
from fxdebug.capture.trials.process_knobs import put
from fxdebug.capture.trials.subject import Subject

_FLAGS = ("gradient_checkpointing", "use_checkpoint", "checkpointing", "use_checkpointing", "grad_checkpointing")


@knob("recomputation")
def recomputation(subject: Subject) -> Iterator[Try]:
    """Keep what the backward needs instead of computing it again."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        for copy, name in _switched(subject.model):
            setattr(copy, name, False)
        return subject.within(lambda: kept([]))

    if subject.loss is not None and (_switched(subject.model) or _checkpoints(subject)):
        yield Try("no recomputation", "switch checkpointing off where the memory is there", prepare)


def _switched(model: nn.Module) -> list[tuple[nn.Module, str]]:
    found = [(module, name) for module in modules_of(model) for name in _FLAGS]
    return [(module, name) for module, name in found if vars(module).get(name) is True]


def _checkpoints(subject: Subject) -> bool:
    """Does a forward call ``checkpoint``? It is run once for that."""
    called: list[str] = []
    with contextlib.suppress(Exception), subject.unchanged() as restore:  # it is passed on by the first step
        restore()
        args, kwargs = subject.inputs()
        with torch.enable_grad(), subject.settings(), kept(called):
            subject.model(*args, **kwargs)
    return bool(called)


@contextlib.contextmanager
def kept(called: list[str]) -> Iterator[None]:
    """Let ``torch.utils.checkpoint`` keep what it would compute again; note its calls in ``called``."""

    def without_recomputing(function: Callable[..., Any], *_: Any, **__: Any) -> Iterator[None]:
        called.append(str(function))
        yield  # here the forward runs, as it does in torch's own generator

    def of_reentrant(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        called.append(str(function))
        return function(*args)

    name = "_checkpoint_without_reentrant_generator"
    with contextlib.ExitStack() as stack:
        generator = Attribute(
            "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
            checkpoint,
            name,
            lambda _: without_recomputing,
        )
        stack.enter_context(put(generator))
        reentrant = Attribute(
            "torch.utils.checkpoint.CheckpointFunction.apply",
            checkpoint.CheckpointFunction,
            "apply",
            lambda _: staticmethod(of_reentrant),
        )
        stack.enter_context(put(reentrant))
        yield
