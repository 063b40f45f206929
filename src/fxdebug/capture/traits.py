"""What a module's Python may decide by: its own attributes, those of what it holds, variables that its code names.

What it decides need not leave a mark on a tape: a setting around an operation, a variable around a call, a constant
that only another run would show.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.reach import MISSING, Reach, contents_of
from fxdebug.capture.surroundings import environment

MOST = 200  # items of a container


def traits_of(module: nn.Module) -> tuple[Any, ...]:
    """What tells instances of a class apart, numbers of layers aside: with others, a body may be another one.

    Not of torch's own layers: whatever those decide shows on the tape.
    """
    if not module._modules and type(module).__module__.startswith("torch.nn.modules."):
        return ()
    return tuple(_own(module, numbers=False))


class Standing:
    """How a module and all that its Python decides by stand: :meth:`now` is another one once anything was set.

    Objects are known by their ids, so that none is kept alive.
    """

    def __init__(self, module: nn.Module) -> None:
        reach = Reach(module)
        self._module = module
        self._globals = reach.globals
        self._cells = reach.cells
        self._classes = [*reach.classes, *{kind for kind, _ in reach.members}]

    def now(self) -> tuple[Any, ...]:
        """How it all stands now."""
        with torch._C.DisableTorchFunction():
            found: list[Any] = [id(place.get(name, MISSING)) for place, name in self._globals]
            found += [tuple(map(id, contents_of(cell))) for cell in self._cells]
            found += [tuple(map(id, kind.__dict__.values())) for kind in self._classes]
            found += [(id(variable), id(held)) for variable, held in contextvars.copy_context().items()]
            found += environment().items()
            for inner in self._module.modules():
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
        return (id(held), _kind_of(held)) if numbers else kind
    if depth < 2:
        if kind in (list, tuple) and len(held) < MOST:
            return kind, tuple([_trait(item, numbers, depth + 1) for item in held])
        if kind is dict and len(held) < MOST:
            return kind, tuple([(str(key), _trait(item, numbers, depth + 1)) for key, item in held.items()])
        inside = getattr(held, "__dict__", None) if numbers else None
        if type(inside) is dict and not isinstance(held, (nn.Module, type)) and len(inside) < MOST:
            return kind, id(held), tuple([(name, _trait(item, numbers, depth + 1)) for name, item in inside.items()])
    return (kind, id(held)) if numbers or (callable(held) and not isinstance(held, nn.Module)) else kind


def _kind_of(held: Tensor | None) -> Any:
    return None if held is None else (type(held), held.shape, held.dtype, held.device, held.requires_grad)


_OF_MODULES = frozenset((*vars(nn.Module()), "forward"))
