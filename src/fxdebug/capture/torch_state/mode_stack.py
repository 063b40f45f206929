"""This thread's stack of torch function modes: remove and insert a mode, and ask if a module may run under one."""

from __future__ import annotations

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.torch_state import internals


def remove_mode(mode: TorchFunctionMode) -> int | None:
    """Remove one mode from this thread's stack; return how many were above it, ``None`` if it is not there."""
    popped = []
    while internals.len_torch_function_stack():
        top = internals.pop_torch_function_stack()
        popped.append(top)
        if top is mode:
            break
    is_there = bool(popped) and popped[-1] is mode
    for other in reversed(popped[:-1] if is_there else popped):
        internals.push_on_torch_function_stack(other)
    return len(popped) - 1 if is_there else None


def insert_mode(mode: TorchFunctionMode, above: int) -> None:
    """Insert a mode below the ``above`` topmost ones, where :func:`remove_mode` found it."""
    others = [internals.pop_torch_function_stack() for _ in range(above)]
    internals.push_on_torch_function_stack(mode)
    for other in reversed(others):
        internals.push_on_torch_function_stack(other)


def allows_mode_around(module: nn.Module) -> bool:
    """May a mode be active while this module runs? Not where a mode switches off a fused kernel or compiled code."""
    bases = type(module).__mro__
    if _FUSED.isdisjoint(bases):
        return True
    if torch.jit.ScriptModule in bases:
        return False
    needs_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
    return module.training or needs_gradient


_FUSED = frozenset((nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention, torch.jit.ScriptModule))
