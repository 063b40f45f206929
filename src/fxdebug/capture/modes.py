"""Modes on a thread's stack: one of them taken off and put back, and modules that none may be active around."""

from __future__ import annotations

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.torch_state import internals


def take_off(mode: TorchFunctionMode) -> int | None:
    """Take one mode off this thread's stack; how many stood above it, or ``None`` if it is not there."""
    taken = []
    while internals.len_torch_function_stack():
        top = internals.pop_torch_function_stack()
        taken.append(top)
        if top is mode:
            break
    found = bool(taken) and taken[-1] is mode
    for other in reversed(taken[:-1] if found else taken):
        internals.push_on_torch_function_stack(other)
    return len(taken) - 1 if found else None


def put_on(mode: TorchFunctionMode, above: int) -> None:
    """Put a mode back where it stood."""
    others = [internals.pop_torch_function_stack() for _ in range(above)]
    internals.push_on_torch_function_stack(mode)
    for other in reversed(others):
        internals.push_on_torch_function_stack(other)


def makes_no_difference(module: nn.Module) -> bool:
    """May a mode be active while this module runs? Not where it would switch off a fused path or compiled code."""
    bases = type(module).__mro__
    if _FUSED.isdisjoint(bases):
        return True
    if torch.jit.ScriptModule in bases:
        return False
    needs_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
    return module.training or needs_gradient


_FUSED = frozenset((nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention, torch.jit.ScriptModule))
