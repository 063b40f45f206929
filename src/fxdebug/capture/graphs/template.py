"""What operations, arguments and constants are called, in graphs and in reasons."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fxdebug.capture.reasons import Words
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import OpaqueArg, uids_in
from fxdebug.capture.tape.source_line import Line
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.torch_state.grad_mode import Context


class Slot:
    """The tensor in a slot."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Attribute:
    """A tensor (or another object) that the module holds, by name; or, without a name, the very tensor."""

    __slots__ = ("name", "tensor")

    def __init__(self, name: str | None, tensor: Any) -> None:
        self.name = name
        self.tensor = tensor


class OpaqueSlot:
    """An object only identity tells apart: the same number is the same object."""

    __slots__ = ("number", "type")

    def __init__(self, number: int, type: type) -> None:
        self.number = number
        self.type = type


@dataclass(slots=True)
class Node:
    """One operation, or one call of a child (``module`` is then its path or, if it has none, the module)."""

    function: Callable[..., Any] | None
    module: str | nn.Module | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    context: Context
    line: Line | None


@dataclass(frozen=True)
class Guard:
    """An assumption: what was asked, what the answer was, and where in the source."""

    what: str
    answer: str
    source: str | None
    node: int | None = None  # the operation that gave the answer, for questions about values

    def __str__(self) -> str:
        return f"{self.what} is {self.answer}" + (f" ({self.source})" if self.source else "")


MOST_FITTED = 10_000  # modules a pattern remembers to have fitted: in a long process they come and go


@dataclass(eq=False)
class GraphTemplate:
    """A body's graph in template form."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    nodes: list[Node] = field(default_factory=list)
    out: Any = None
    guards: list[Guard] = field(default_factory=list)
    slots: int = 0
    inputs: int = 0  # the first so many slots are arguments
    held: int = 0  # how many opaque objects there are
    context: Context = (True, False, None)
    proven: bool = False  # traced symbolically, not taken from a tape
    names: tuple[str, ...] = ()  # of the slots that are arguments
    reusable: bool = True
    fitted: set[int] = field(default_factory=set)  # ids of modules it fitted: where several could, it is tried first
    traits: tuple[Any, ...] = ()  # of the module it was traced for
    only_here: Words | None = None  # what its Python does that a graph does not, so that it is not run elsewhere
    built: Any = None  # the torch.fx graph, once somebody has looked at it

    def fits(self, module: nn.Module) -> None:
        """It fitted this module. A hint, no more: ids are given out again."""
        if len(self.fitted) >= MOST_FITTED:
            self.fitted.clear()
        self.fitted.add(id(module))


def relative_paths(module: nn.Module) -> dict[int, str]:
    """``id`` → path relative to ``module``, first names first, of every module below it."""
    return {id(inner): path for path, inner in reversed(list(module.named_modules()))}


def attribute_names(module: nn.Module) -> dict[int, str]:
    """``id`` → first name relative to ``module`` of every parameter and buffer it holds."""
    names: dict[int, str] = {}
    for path, inner in module.named_modules():
        for name, tensor in (*inner._parameters.items(), *inner._buffers.items()):
            if tensor is not None:
                names.setdefault(id(tensor), f"{path}.{name}" if path else name)
    return names


def object_name(module: nn.Module, thing: object) -> str | None:
    """The name, relative to ``module``, of an attribute of it or of a module below it that is ``thing``."""
    for path, inner in module.named_modules():
        for name, held in inner.__dict__.items():
            if held is thing and name.isidentifier():
                return f"{path}.{name}" if path else name
    return None


def member(module: nn.Module, path: str) -> Any:
    """``module.a.b`` for ``"a.b"``; the module itself for an empty path."""
    if path and "." not in path:
        return getattr(module, path)
    found: Any = module
    for name in path.split(".") if path else ():
        found = getattr(found, name)
    return found


def is_another_of(module: nn.Module, recorded: Any) -> bool:
    """Is it a module made in the body, without tensors, that is configured just like the one made when it ran?"""
    if type(module) is not type(recorded) or module._modules:
        return False
    if any(held is not None for held in (*module._parameters.values(), *module._buffers.values())):
        return False
    mine, theirs = module.__dict__, recorded.__dict__
    plain = [name for name in mine if not name.startswith("_") and name != "forward"]
    try:
        return all(name in theirs and bool(mine[name] == theirs[name]) for name in plain)
    except Exception:
        return False


def argument_names(forward: Callable[..., Any], body: CallTape, count: int) -> tuple[str, ...]:
    """A name for each tensor argument: the parameter it was passed as, with a number inside containers."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named: list[tuple[str, Any]] = [
        (positional[i] if i < len(positional) else f"arg{i}", code) for i, code in enumerate(body.args)
    ]
    named += list(body.kwargs.items())
    names: dict[TensorId, str] = {}
    for name, code in named:
        inside = list(dict.fromkeys(uids_in(code)))
        for position, uid in enumerate(inside):
            names.setdefault(uid, name if len(inside) == 1 else f"{name}_{position}")
    return tuple(names.values())[:count]


def name_of(what: Any) -> str:
    """What a function or module is called in a reason."""
    if isinstance(what, nn.Module):
        return f"the module {type(what).__name__}"
    owner = getattr(what, "__self__", None)
    name = str(getattr(what, "__name__", type(what).__name__))
    return str(getattr(owner, "__name__", name)) if name == "__get__" else name


def short(thing: Any) -> str:
    """A constant in a few letters."""
    text = repr(thing) if type(thing) is not OpaqueArg else f"a {type(thing.thing).__name__}"
    return "a tensor" if type(thing) is TensorId else text if len(text) <= 40 else text[:37] + "…"
