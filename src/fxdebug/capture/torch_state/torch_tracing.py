"""Detect that torch traces this thread: by ``torch.compile``, ``torch.jit.trace``, ``torch.export`` or ``make_fx``.

A CUDA graph that is captured counts as well: work of ours would become a part of it, as it would of a trace.
"""

from __future__ import annotations

import torch

from fxdebug.capture.torch_state import internals
from fxdebug.stats.accelerator import captures_graph

_compiling = torch.compiler.is_dynamo_compiling
_exporting = internals.is_exporting
_by_jit = internals.is_tracing
_modes = internals.len_torch_dispatch_stack
_mode = internals.get_dispatch_mode
_early_mode = internals.get_dispatch_mode_pre_dispatch
_is_included, _EARLY = internals.dispatch_tls_is_dispatch_key_included, internals.PRE_DISPATCH
_PROXIES = internals.PROXY


def is_traced_by_torch() -> bool:
    """Does torch trace this thread, by one of these ways or as a CUDA graph?

    >>> seen = []
    >>> def f(x): seen.append(is_traced_by_torch()); return x + 1
    >>> traced = torch.jit.trace(f, torch.ones(1), check_trace=False)
    >>> seen, is_traced_by_torch()
    ([True], False)
    """
    traces = _compiling() or _by_jit() or _exporting() or captures_graph()
    return traces or (_may_trace_with_proxies() and _traces_with_proxies())


def may_be_traced() -> bool:
    """May torch trace this thread? A quick check that does not notice ``torch.compile`` and ``torch.export``."""
    return _by_jit() or _may_trace_with_proxies() or captures_graph()


def _may_trace_with_proxies() -> bool:
    return _modes() > 0 or _is_included(_EARLY)


def _traces_with_proxies() -> bool:
    return _mode(_PROXIES) is not None or _early_mode(_PROXIES) is not None
