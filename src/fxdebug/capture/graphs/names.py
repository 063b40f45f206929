"""Names of operations, arguments, modules and constants, in graphs and in reasons."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.replay.introspect import members_in
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import ATOMS, OpaqueArg, leaves_in, tensor_ids_in
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.torch_state.module_members import named_modules_of
from fxdebug.errors import with_article


def relative_paths(module: nn.Module) -> dict[int, str]:
    """Return ``id`` → path relative to ``module`` of every module below it; the first name counts.

    One registered under an empty name has none: torch takes such a path for that of its parent.
    """
    named = reversed(list(named_modules_of(module)))
    return {id(inner): path for path, inner in named if inner is module or (path and all(path.split(".")))}


def attribute_names(module: nn.Module) -> dict[int, str]:
    """Return ``id`` → name relative to ``module`` of every parameter and buffer it holds; the first name counts."""
    names: dict[int, str] = {}
    for path, inner in named_modules_of(module):
        for name, tensor in (*inner._parameters.items(), *inner._buffers.items()):
            if tensor is not None:
                names.setdefault(id(tensor), f"{path}.{name}" if path else name)
    return names


def object_name(module: nn.Module, wanted: object) -> str | None:
    """Return the name, relative to ``module``, of the attribute of it or of a module below that is ``wanted``."""
    if isinstance(wanted, nn.Module):
        path = relative_paths(module).get(id(wanted))
        if path is not None:
            return path or None
    for path, inner in named_modules_of(module):
        for name, attribute in inner.__dict__.items():
            if attribute is wanted and name.isidentifier():
                return f"{path}.{name}" if path else name
    return None


def place_below(module: nn.Module, tensor: Tensor) -> tuple[str, str, tuple[tuple[Any, bool], ...]] | None:
    """Return where a module below this one holds a tensor: its path, its attribute, and the steps from there.

    A list is not entered: it may grow with every call, and the tensor is elsewhere in it then.
    """
    for path, inner in named_modules_of(module):
        for name, held in _attributes_of(inner) if path else ():
            if held is tensor:
                return path, name, ()
            if name not in _OF_MODULES and name.isidentifier() and type(held) not in ATOMS and type(held) is not list:
                steps = None if isinstance(held, (Tensor, nn.Module)) else steps_to(held, tensor, through_lists=False)
                if steps is not None:
                    return path, name, steps
    return None


_OF_MODULES = frozenset(vars(nn.Module()))


def _attributes_of(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for table in (module._buffers, module._parameters, vars(module)):
        yield from table.items()


def steps_to(thing: Any, tensor: Tensor, through_lists: bool = True) -> tuple[tuple[Any, bool], ...] | None:
    """Return the steps from an object to a tensor inside it, over attributes and items; ``None`` if there are none.

    A step is a key, and whether it is the name of an attribute. The shortest way is found. No code of the object runs.
    """
    pending: deque[tuple[Any, tuple[tuple[Any, bool], ...]]] = deque([(thing, ())])
    visited: set[int] = set()
    while pending and len(visited) < _MOST_SEARCHED:
        holder, steps = pending.popleft()
        if id(holder) in visited or len(steps) > _LONGEST_WAY:
            continue
        visited.add(id(holder))
        for key, by_name, inner in _members(holder):
            way = (*steps, (key, by_name))
            if inner is tensor:
                return way
            if type(inner) is list and not through_lists:
                continue
            if type(inner) not in ATOMS and not issubclass(type(inner), (Tensor, nn.Module)):
                pending.append((inner, way))
    return None


_LONGEST_WAY, _MOST_SEARCHED = 4, 1_000


def _members(holder: Any) -> Iterator[tuple[Any, bool, Any]]:
    kind = type(holder)
    if kind is dict:
        yield from ((key, False, item) for key, item in holder.items() if type(key) in (str, int))
    elif kind is list or kind is tuple:
        yield from ((index, False, item) for index, item in enumerate(holder))
    elif issubclass(kind, nn.Module):
        for table in (holder._parameters, holder._buffers):
            yield from ((name, True, tensor) for name, tensor in table.items())
    else:
        yield from ((name, True, item) for name, item in (members_in(holder) or {}).items())


def follow(thing: Any, steps: tuple[tuple[Any, bool], ...]) -> Any:
    """Return what these steps lead to."""
    for key, by_name in steps:
        thing = getattr(thing, key) if by_name else thing[key]
    return thing


def member(module: nn.Module, path: str) -> Any:
    """Return ``module.a.b`` for ``"a.b"``, and the module itself for an empty path."""
    if path and "." not in path:
        return getattr(module, path)
    inner: Any = module
    for name in path.split(".") if path else ():
        inner = getattr(inner, name)
    return inner


def argument_names(forward: Callable[..., Any], tape: CallTape, count: int) -> tuple[str, ...]:
    """Return a name for each tensor argument: the parameter's, with a number where a container is passed."""
    names: dict[TensorId, str] = {}
    for name, code in _named_arguments(forward, tape):
        inside = list(dict.fromkeys(tensor_ids_in(code)))
        for position, tensor_id in enumerate(inside):
            names.setdefault(tensor_id, name if len(inside) == 1 else f"{name}_{position}")
    return tuple(names.values())[:count]


def size_names(forward: Callable[..., Any], tape: CallTape, taken: Collection[str]) -> tuple[str, ...]:
    """Return a name for each integer among the arguments that is a size, in order, and none of those ``taken``."""
    names: list[str] = []
    passed = 0  # leaves of the arguments
    for name, code in _named_arguments(forward, tape):
        count = sum(1 for _ in leaves_in(code))
        numbers = [number for number in range(count) if passed + number in tape.sizes_given]
        for number in numbers:
            own = name if len(numbers) == 1 else f"{name}_{number}"
            names.append(f"{own}_size" if own in taken else own)
        passed += count
    return tuple(names)


def _named_arguments(forward: Callable[..., Any], tape: CallTape) -> list[tuple[str, Any]]:
    """Return the code of each argument with the name of its parameter."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_position = [(positional[i] if i < len(positional) else f"arg{i}", code) for i, code in enumerate(tape.args)]
    return [*by_position, *tape.kwargs.items()]


def operation_name(what: Any) -> str:
    """Return the name of a function or module for a reason."""
    if isinstance(what, nn.Module):
        return f"the module {type(what).__name__}"
    owner = getattr(what, "__self__", None)
    name = str(getattr(what, "__name__", type(what).__name__))
    return str(getattr(owner, "__name__", name)) if name == "__get__" else name


def short_repr(constant: Any) -> str:
    """Return a constant in a few letters, for a reason."""
    text = repr(constant) if type(constant) is not OpaqueArg else with_article(type(constant.object).__name__)
    return "a tensor" if type(constant) is TensorId else text if len(text) <= 40 else text[:37] + "…"
