"""Functions as targets of ``torch.fx`` nodes: the code that torch.fx writes must be readable, and run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.tape.encoding import Struct, map_leaves

# Tensor methods that are written as operators.
OPERATORS: dict[Any, Callable[..., Any]] = {
    getattr(Tensor, f"__{name}__"): getattr(operator, name)
    for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "neg", "eq", "ne", "lt", "le", "gt", "ge",
        "iadd", "isub", "imul", "itruediv", "getitem", "setitem", "invert", "and_", "or_", "xor",
    )
    if hasattr(Tensor, f"__{name}__")
}  # fmt: skip

TAKE_SIZES = frozenset(("new",))  # they take a ``torch.Size`` as a shape, and a tuple as the elements


def sizes_as_tuples(template: Any) -> Any:
    """Return arguments with a tuple in the place of every ``torch.Size``: the code reads better."""

    def build(struct: Struct, items: list[Any]) -> Any:
        return tuple(items) if struct.type is torch.Size else struct.with_items(items)

    return map_leaves(template, lambda leaf: leaf, build)


def struct_maker(struct: Struct) -> Callable[..., Any]:
    """Return a function that builds a named tuple, dataclass or ``ModelOutput``, with a name for the generated code."""

    def make(*items: Any) -> Any:
        return struct.build(list(items))

    make.__name__ = make.__qualname__ = f"make_{struct.type.__name__}"
    make.__module__ = "fxdebug"
    make.struct = struct  # type: ignore[attr-defined]
    return make


def make_list(items: Any) -> list[Any]:
    """Return a list that a module in the graph can change."""
    return list(items)


def make_dict(items: Any) -> dict[Any, Any]:
    """Return a dict that a module in the graph can change."""
    return dict(items)


def changed_by(container: Any, result: Any) -> Any:
    """Return a list or dict in its state after the call with this result, which changes it."""
    return container


for _function in (make_list, make_dict, changed_by):
    _function.__module__ = "fxdebug"  # torch.fx writes it before the name


def importable(function: Any) -> Callable[..., Any]:
    """Return the function, or a wrapper of it if torch.fx cannot write its name in code."""
    try:
        from torch.fx.node import _get_qualified_name

        _get_qualified_name(function)
        return function  # type: ignore[no-any-return]
    except Exception:

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        name = str(getattr(function, "__name__", type(function).__name__)).strip("_") or "op"
        call.__name__ = call.__qualname__ = name
        call.__wrapped__ = function  # type: ignore[attr-defined]
        return call


def identifier(name: str) -> str:
    """Return a name for a placeholder that Python accepts."""
    return name if name.isidentifier() else "".join(c if c.isalnum() else "_" for c in f"a_{name}")
