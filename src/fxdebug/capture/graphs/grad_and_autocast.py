"""Grad, inference and autocast blocks of a body, as calls in its graph: each operation runs in the state it ran in.

The graph enters and leaves blocks by calls of functions, so that generated code does, too. Where an operation inside
raises, :func:`closed` leaves the blocks that are still open.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from fxdebug.capture.replay.variables import Change, ClassAttribute, Item, in_force
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import Context

Switch = tuple[Callable[..., Any], tuple[Any, ...]]


class Blocks:
    """The calls that lead from one state to the next; the first state is ``base``, in which the body begins."""

    def __init__(self, base: Context) -> None:
        self._base = base
        self._now = base
        self._open = 0

    def switches(self, wanted: Context) -> list[Switch]:
        """Return the calls before an operation that ran in this state."""
        gradients, *blocks = self._now
        calls: list[Switch] = []
        if tuple(blocks) != wanted[1:]:  # no tape shows how blocks are nested: leave all, then enter those wanted
            calls += [(leave_block, ())] * self._open
            entered = _entering(self._base, wanted)
            self._open = len(entered)
            calls += entered
        if gradients != wanted[0] or self._now[1] != wanted[1]:  # switching inference mode sets gradients, too
            calls.append((internals.set_grad_enabled, (wanted[0],)))
        self._now = wanted
        return calls


def _entering(base: Context, wanted: Context) -> list[Switch]:
    before, after = dict(base[2] or ()), dict(wanted[2] or ())
    calls: list[Switch] = [] if base[1] == wanted[1] else [(enter_inference_mode, (wanted[1],))]
    calls += [(disable_autocast, (device,)) for device in before if device not in after]
    calls += [(enter_autocast, (device, dtype)) for device, dtype in after.items() if before.get(device) != dtype]
    return calls


class _Open(threading.local):
    """The blocks of generated functions that are open in this thread, innermost last."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []


_open = _Open()


def _enter(block: Any) -> None:
    block.__enter__()
    _open.blocks.append(block)


def enter_autocast(device: str, dtype: torch.dtype) -> None:
    """Begin an autocast block."""
    _enter(torch.autocast(device, dtype=dtype))


def disable_autocast(device: str) -> None:
    """Begin a block without autocast."""
    _enter(torch.autocast(device, enabled=False))


def enter_inference_mode(on: bool) -> None:
    """Begin a block of inference mode, or one without it."""
    _enter(torch.inference_mode(on))


class _Kernels:
    """A block in which torch may choose from some kernels for attention."""

    def __init__(self, kernels: internals.AttentionKernels) -> None:
        self._kernels = kernels

    def __enter__(self) -> None:
        self._before = internals.attention_kernels()
        internals.set_attention_kernels(self._kernels)

    def __exit__(self, *error: object) -> None:
        internals.set_attention_kernels(self._before)


def enter_attention_kernels(kernels: internals.AttentionKernels) -> None:
    """Begin a block in which torch may choose from these kernels for attention."""
    _enter(_Kernels(kernels))


def enter_attribute(owner: Any, name: str, content: Any) -> None:
    """Begin a block in which a class or a module has another number, text or flag in an attribute."""
    variable = ClassAttribute(owner, name) if isinstance(owner, type) else Item(vars(owner), name)
    _enter(in_force([Change(variable, content)]))


def enter_weight(owner: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Begin a block in which a module has another tensor in the place of a parameter or buffer."""
    table = next((table for table in (owner._parameters, owner._buffers) if name in table), vars(owner))
    _enter(in_force([Change(Item(table, name), tensor)]))


def leave_block() -> None:
    """End the innermost block."""
    _open.blocks.pop().__exit__(None, None, None)


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """Leave all blocks that were entered inside, whatever is raised."""
    before = len(_open.blocks)
    try:
        yield
    finally:
        while len(_open.blocks) > before:
            leave_block()
