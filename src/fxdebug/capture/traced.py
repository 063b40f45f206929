"""Is torch itself tracing what runs here? Then it is no run: sizes may be symbols, and what one does with them shows.

``torch.compile`` and ``torch.export``, ``torch.jit.trace`` (and what exports by it), ``make_fx``. A recording is as if
it were not there for as long; tensors that are fake by themselves are no reason for that.
"""

from __future__ import annotations

import torch

from fxdebug.capture.torch_state import internals

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
