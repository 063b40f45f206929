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

_compiling = torch.compiler.is_dynamo_compiling
_exporting = internals.is_exporting
_by_jit = internals.is_tracing
_modes = internals.len_torch_dispatch_stack
_mode = internals.get_dispatch_mode
_early_mode = internals.get_dispatch_mode_pre_dispatch
_is_included, _EARLY = internals.dispatch_tls_is_dispatch_key_included, internals.PRE_DISPATCH
_PROXIES = internals.PROXY


def is_traced() -> bool:
    """Is what this thread runs being traced?

    >>> found = []
    >>> traced = torch.jit.trace(lambda x: (x + 1, found.append(is_traced()))[0], torch.ones(1), check_trace=False)
    >>> found, is_traced()
    ([True], False)
    """
    return _compiling() or _by_jit() or _exporting() or (_may_have_proxies() and _has_proxies())


def may_be_traced() -> bool:
    """Is there anything by which this thread's keys show that it may be?"""
    return _by_jit() or _may_have_proxies()


def _may_have_proxies() -> bool:
    return _modes() > 0 or _is_included(_EARLY)


def _has_proxies() -> bool:
    return _mode(_PROXIES) is not None or _early_mode(_PROXIES) is not None
