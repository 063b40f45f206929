"""What a module's Python may decide by: its own attributes, and those of the modules, tensors and objects it holds.

What it decides need not leave a mark on a tape: a setting around an operation, a variable around a call, a constant
that only another run would show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

MOST = 200  # items of a container


def traits_of(module: nn.Module) -> tuple[Any, ...]:
    """What tells instances of a class apart, numbers of layers aside: with others, a body may be another one."""
    return tuple(_own(module, numbers=False))


def standing_of(module: nn.Module) -> tuple[Any, ...]:
    """How a module and everything in it stands now: attributes, training flags, kinds of parameters and buffers."""
    found: list[Any] = []
    for inner in module.modules():
        found.append((inner.training, *_own(inner, numbers=True)))
        found += [_kind_of(held) for held in (*inner._parameters.values(), *inner._buffers.values())]
    return tuple(found)


def _own(module: nn.Module, numbers: bool) -> Iterator[tuple[str, Any]]:
    for name, held in module.__dict__.items():
        if name not in _OF_MODULES:
            yield name, _trait(held, numbers)


def _trait(held: Any, numbers: bool, depth: int = 0) -> Any:
    kind = type(held)
    if kind in (bool, str, float, type(None)) or (numbers and kind in (int, complex, bytes)):
        return kind, repr(held) if kind is float else held  # 0.0 is not -0.0
    if issubclass(kind, Tensor):
        return _kind_of(held) if numbers else kind
    if depth < 2:
        if kind in (list, tuple) and len(held) < MOST:
            return kind, tuple([_trait(item, numbers, depth + 1) for item in held])
        if kind is dict and len(held) < MOST:
            return kind, tuple([(str(key), _trait(item, numbers, depth + 1)) for key, item in held.items()])
        inside = getattr(held, "__dict__", None) if numbers else None
        if type(inside) is dict and not isinstance(held, (nn.Module, type)) and len(inside) < MOST:
            return kind, id(held), tuple([(name, _trait(item, numbers, depth + 1)) for name, item in inside.items()])
    return (kind, id(held)) if callable(held) and not isinstance(held, nn.Module) else kind


def _kind_of(held: Tensor | None) -> Any:
    return None if held is None else (type(held), held.shape, held.dtype, held.device, held.requires_grad)


_OF_MODULES = frozenset((*vars(nn.Module()), "forward"))
