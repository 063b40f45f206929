"""The functions of torch that recorded operations name: those that compute with tensors, and no others.

A graph may come from a file. Its names are looked up among the functions that torch lets others override, which take
tensors and touch no files, and among those that make tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from fxdebug.data.graphs import Op
from fxdebug.operators.names import FACTORIES

_SIGNS = frozenset(
    "add sub mul truediv floordiv mod pow matmul neg invert and_ or_ xor eq ne lt le gt ge iadd isub imul itruediv "
    "getitem setitem".split()
)
_ATTRIBUTES = frozenset("T mT H mH real imag data".split())
# their arguments would be code of the program, or they hand the data out of torch
_NEITHER = frozenset("apply_ map_ map2_ register_hook numpy __reduce_ex__ __array__ backward share_memory_".split())

_HOMES = {
    "torch._C._nn.": "F.", "torch.nn.functional.": "F.", "torch._VariableFunctionsClass.": "torch.",
    "torch.functional.": "torch.", "torch._C._special.": "torch.special.", "torch._C._fft.": "torch.fft.",
    "torch._C._linalg.": "torch.linalg.", "torch._C.TensorBase.": "torch.Tensor.", "torch._tensor.": "torch.",
    "torch._ops.aten.": "torch.ops.aten.", "torch.": "torch.",
}  # fmt: skip


def function_of(op: Op) -> Callable[..., Any] | None:
    """Return what computes an operation of a recorded graph; ``None`` for what is no computation with tensors of torch.

    >>> function_of(Op("gelu", "call_function", "gelu", "torch._C._nn.gelu")) is torch.nn.functional.gelu
    True
    >>> function_of(Op("load", "call_function", "load", "torch.serialization.load")) is None
    True
    """
    if op.kind == "call_method":
        method = getattr(torch.Tensor, op.target, None)
        return method if op.target not in _NEITHER and _computes(op.target, method) else None
    home, _, name = op.target.rpartition(".")
    if home == "_operator":
        return getattr(operator, name) if name in _SIGNS else None
    if op.target == "builtins.getattr":
        return getattr if len(op.args) == 2 and op.args[1] in _ATTRIBUTES else None
    head = head_of(op.target)
    function = None if head is None else public_function(head)
    return function if function is not None and name not in _NEITHER and _computes(name, function) else None


def _computes(name: str, function: Any) -> bool:
    return function is not None and (function in _overridable() or name in FACTORIES)


@cache
def _overridable() -> frozenset[Any]:
    found = torch.overrides.get_overridable_functions()
    return frozenset({function for functions in found.values() for function in functions})


def head_of(target: str) -> str | None:
    """Return the public name of a function of torch as scripts write it; ``None`` for other targets.

    >>> head_of("torch._C._nn.gelu"), head_of("my_kernels.gelu")
    ('F.gelu', None)
    """
    home = next((home for home in _HOMES if target.startswith(home)), None)
    return None if home is None else _HOMES[home] + target.removeprefix(home)


def public_function(head: str) -> Callable[..., Any] | None:
    """Return a function of torch by its public name; ``None`` where there is none.

    >>> public_function("F.gelu") is F.gelu
    True
    """
    names = head.split(".")
    found: Any = {"F": F, "torch": torch}.get(names[0])
    for name in names[1:]:
        found = getattr(found, name, None)
    return found if callable(found) else None
