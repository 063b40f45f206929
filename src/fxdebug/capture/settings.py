"""Settings of the process's and of torch's: a body that is run again must leave each of them as it was.

Those that nothing computes by are put back afterwards. The others, and those that cannot be asked for, must not be
set at all: a graph does not say under which of them it holds.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fxdebug.capture import reasons
from fxdebug.capture.own_state import back_to_what_it_is
from fxdebug.capture.reasons import Words
from fxdebug.capture.surroundings import environment

# What decides how torch computes besides what a graph says: ``torch._C._set_…``
_TORCHS = (
    "default_dtype default_tensor_type deterministic_algorithms deterministic_fill_uninitialized_memory "
    "float32_matmul_precision fp32_precision_setter cpu_allow_fp16_reduced_precision_reduction "
    "mkldnn_deterministic mkldnn_enabled onednn_allow_tf32 nnpack_enabled qengine blas_preferred_backend "
    "linalg_preferred_backend cudnn_allow_tf32 cudnn_benchmark cudnn_deterministic cudnn_enabled "
    "cublas_allow_tf32 cublas_allow_fp16_accumulation cublas_allow_fp16_reduced_precision_reduction "
    "cublas_allow_bf16_reduced_precision_reduction sdp_priority_order sdp_use_cudnn sdp_use_fa3 sdp_use_flash "
    "sdp_use_math sdp_use_mem_efficient sdp_use_overrideable math_sdp_allow_fp16_bf16_reduction warnAlways"
).split()
_OTHERS_OF_TORCHS = "set_num_threads set_flush_denormal set_anomaly_enabled".split()
_LOGGING = (
    (logging.Logger, "setLevel addHandler removeHandler"), (logging.Handler, "setLevel"),
    (logging.Filterer, "addFilter removeFilter"), (logging, "disable"),
)  # fmt: skip
_PROCESS = (
    (os, "umask chdir fchdir nice sched_setaffinity", reasons.CHANGES_PROCESS_SETTING),
    (sys, "setrecursionlimit setswitchinterval", reasons.CHANGES_PROCESS_SETTING),  # recordings set them, too
    (signal, "signal alarm setitimer", reasons.CHANGES_SIGNALS),
    (atexit, "register unregister", reasons.CHANGES_EXIT),
)


def must_not_be_set() -> Iterator[tuple[Any, str, Words]]:
    """The owner and the name of each function that sets one, and what a body does that calls it."""
    named = [(torch._C, f"_set_{name}") for name in _TORCHS]
    named += [(owner, name) for owner in (torch, torch._C) for name in _OTHERS_OF_TORCHS]
    for owner, name in named:
        if hasattr(owner, name):
            yield owner, name, reasons.CHANGES_TORCH_SETTING(name=name.lstrip("_"))
    yield torch.backends.ContextProp, "__set__", reasons.CHANGES_TORCH_SETTING(name="torch.backends")
    for kind, names in _LOGGING:
        for name in names.split():
            yield kind, name, reasons.CHANGES_LOGGING(name=name)
    for owner, names, reason in _PROCESS:
        for name in names.split():
            if hasattr(owner, name):
                yield owner, name, reason(name=f"{owner.__name__}.{name}")


def rewinds() -> list[Callable[[], bool]]:
    """Calls that set each to what it is now, and tell whether it was something else."""
    return [back_to_what_it_is(get, put) for get, put in _PUT_BACK]


def _filter_warnings(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    getattr(warnings, "_filters_mutated", _nothing)()  # what was decided by others is forgotten


def _nothing() -> None:
    """Where Python finds out for itself."""


def _set_environment(variables: dict[Any, Any]) -> None:
    """As :func:`environment` has them."""
    if hasattr(os.environ, "_data"):
        variables = {os.environ.decodekey(name): os.environ.decodevalue(text) for name, text in variables.items()}
    os.environ.clear()
    os.environ.update(variables)


def _look_for_modules(path: list[str]) -> None:
    sys.path[:] = path


def _print_tensors(options: dict[str, Any]) -> None:
    held = vars(torch._tensor_str.PRINT_OPTS)
    held.clear()
    held.update(options)


_PUT_BACK: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (lambda: list(warnings.filters), _filter_warnings),
    (lambda: list(sys.path), _look_for_modules),
    (environment, _set_environment),
    (lambda: dict(vars(torch._tensor_str.PRINT_OPTS)), _print_tensors),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (gc.get_debug, gc.set_debug),
)
