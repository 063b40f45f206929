"""What a module's Python may decide by: its own attributes, those of what it holds, variables that its code names.

What it decides need not leave a mark on a tape: a setting around an operation, a variable around a call, a constant
that only another run would show.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

MOST = 200  # items of a container
DEPTH = 2  # containers in one another


class This:
    """A very object, to be told from any other later on: an id is given out again once its object is gone.

    It is referred to weakly; one of a kind that cannot be is no object that is met again.
    """

    __slots__ = ("_now",)

    def __init__(self, thing: Any) -> None:
        self._now: Callable[[], Any]
        try:
            self._now = weakref.ref(thing)
        except TypeError:
            self._now = _gone

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not This:
            return self is other
        mine = self._now()
        return mine is not None and mine is other._now()

    __hash__ = None  # type: ignore[assignment]


def _gone() -> None:
    """What became of an object that nothing refers to."""


def traits_of(module: nn.Module) -> tuple[Any, ...]:
    """What tells instances of a class apart, numbers of layers aside: with others, a body may be another one.

    Not of torch's own layers: whatever those decide shows on the tape.
    """
    if not module._modules and type(module).__module__.startswith("torch.nn.modules."):
        return ()
    return tuple([(name, _trait(held)) for name, held in module.__dict__.items() if name not in _OF_MODULES])


def _trait(held: Any, depth: int = 0) -> Any:
    kind = type(held)
    if kind in (bool, str, float, type(None)):
        return kind, repr(held) if kind is float else held  # 0.0 is not -0.0
    if issubclass(kind, Tensor):
        return kind
    if depth < DEPTH:
        if kind in (list, tuple) and len(held) < MOST:
            return kind, tuple([_trait(item, depth + 1) for item in held])
        if kind is dict and len(held) < MOST:
            return kind, tuple([(str(key), _trait(item, depth + 1)) for key, item in held.items()])
    return (kind, This(held)) if callable(held) and not isinstance(held, nn.Module) else kind


_OF_MODULES = frozenset((*vars(nn.Module()), "forward"))
