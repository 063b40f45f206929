"""The distributed job of this process, and the functions that communicate with other ranks."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed
from torch import nn

from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.module_members import modules_of

_LOCAL = frozenset("rank size name group_name group_desc bound_device_id boxed unbox".split())


def is_in_job() -> bool:
    """Is this process one of a distributed job?"""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def communicating_functions() -> list[tuple[Any, str]]:
    """Return (owner, name) of each function that waits for other processes, or counts steps that all must agree on.

    Python functions end in methods of a process group; data parallel modules call C++ directly.
    """
    if not is_in_job():
        return []
    c10d = internals.c10d()
    kinds = [getattr(c10d, name) for name in ("ProcessGroup", "Reducer", "Store", "Work") if hasattr(c10d, name)]
    methods = [
        (kind, name)
        for kind in kinds
        for name, member in vars(kind).items()
        if callable(member) and not name.startswith(("__", "_get", "_pybind", "_is", "_has")) and name not in _LOCAL
        if type(member).__name__ in ("instancemethod", "builtin_function_or_method", "function")
    ]
    in_c = [name for name in vars(c10d) if name.startswith(("_broadcast_coalesced", "_compute_bucket", "_verify"))]
    return methods + [(owner, name) for owner in (torch.distributed, c10d) for name in in_c if hasattr(owner, name)]


def communicates(function: Any) -> bool:
    """Is it a function of ``torch.distributed``, or one of its operators?"""
    home = getattr(function, "__module__", None)
    return is_functional_collective(function) or (isinstance(home, str) and home.startswith("torch.distributed"))


def is_functional_collective(function: Any) -> bool:
    """Is it an operator of torch's functional collectives? What it returns is still on its way."""
    name = getattr(function, "namespace", None) or getattr(function, "_qualified_op_name", None)  # an overload, or all
    return isinstance(name, str) and name.startswith("_c10d_functional")


def wait_for(result: Any) -> None:
    """Wait for what a functional collective returned, a tensor or a list of them."""
    for tensor in result if isinstance(result, (list, tuple)) else (result,):
        internals.wait_tensor(tensor)


def give_back_gathered(model: nn.Module) -> None:
    """Let go of the whole weights that FSDP2 has gathered: a module then holds its parts again, as between two steps.

    The root of a model keeps them after a forward. Another one would not see the step of an optimizer.
    """
    sharding = sys.modules.get("torch.distributed.fsdp")  # to import it takes most of a second
    kind: Any = getattr(sharding, "FSDPModule", None)
    for module in () if kind is None else modules_of(model):
        if isinstance(module, kind):
            module.reshard()
