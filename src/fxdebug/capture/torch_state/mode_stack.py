"""This thread's stack of torch function modes: remove and insert a mode, and ask if a module may run under one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.module_members import modules_of, parameters_of


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


def allows_mode_around(
    module: nn.Module, args: tuple[Any, ...] | None = None, kwargs: Mapping[str, Any] | None = None
) -> bool:
    """May a mode be active while this module runs? Not where a mode switches off a fused kernel or compiled code.

    ``args`` and ``kwargs`` are those of its forward, if they are known.
    """
    if not may_be_fused(type(module)):
        return True
    if torch.jit.ScriptModule in type(module).__mro__:
        return False
    if not torch.backends.mha.get_fastpath_enabled() or _attends_to_another(module, args, kwargs or {}):
        return True
    if not any(isinstance(part, nn.MultiheadAttention) and _has_fused_kernel(part) for part in modules_of(module)):
        return True
    needs_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in parameters_of(module))
    return module.training or needs_gradient


def may_be_fused(kind: type[nn.Module]) -> bool:
    """May modules of a class run a fused kernel or compiled code, which a mode would switch off?"""
    return not _FUSED.isdisjoint(kind.__mro__)


def _attends_to_another(module: nn.Module, args: tuple[Any, ...] | None, kwargs: Mapping[str, Any]) -> bool:
    """Is it an attention from one sequence to another? There is no fused kernel for it."""
    if args is None or type(module).forward is not nn.MultiheadAttention.forward:
        return False
    given = {**dict(zip(("query", "key", "value"), args)), **kwargs}
    return given.get("query") is not given.get("key") or given.get("key") is not given.get("value")


def _has_fused_kernel(attention: nn.MultiheadAttention) -> bool:
    """Is there a fused kernel for such an attention? The conditions are those of ``MultiheadAttention.forward``."""
    extra_keys = attention.bias_k is not None or attention.bias_v is not None or attention.add_zero_attn
    one_weight = getattr(attention, "in_proj_weight", None) is not None
    return attention.batch_first and attention.num_heads % 2 == 0 and not extra_keys and one_weight


def without_mode(
    mode: TorchFunctionMode, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, bool]:
    """Run a forward with the mode taken off; return its result, and whether the mode was there."""
    above = remove_mode(mode)
    try:
        return run(*args, **kwargs), above is not None
    finally:
        if above is not None:
            insert_mode(mode, above)


_FUSED = frozenset((nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention, torch.jit.ScriptModule))
