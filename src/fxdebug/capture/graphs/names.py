"""Names of operations, arguments, modules and constants, in graphs and in reasons."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import OpaqueArg, tensor_ids_in
from fxdebug.capture.tensors.tensor_ref import TensorId


def relative_paths(module: nn.Module) -> dict[int, str]:
    """Return ``id`` → path relative to ``module`` of every module below it; the first name counts."""
    return {id(inner): path for path, inner in reversed(list(module.named_modules()))}


def attribute_names(module: nn.Module) -> dict[int, str]:
    """Return ``id`` → name relative to ``module`` of every parameter and buffer it holds; the first name counts."""
    names: dict[int, str] = {}
    for path, inner in module.named_modules():
        for name, tensor in (*inner._parameters.items(), *inner._buffers.items()):
            if tensor is not None:
                names.setdefault(id(tensor), f"{path}.{name}" if path else name)
    return names


def object_name(module: nn.Module, wanted: object) -> str | None:
    """Return the name, relative to ``module``, of the attribute of it or of a module below that is ``wanted``."""
    for path, inner in module.named_modules():
        for name, attribute in inner.__dict__.items():
            if attribute is wanted and name.isidentifier():
                return f"{path}.{name}" if path else name
    return None


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
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named: list[tuple[str, Any]] = [
        (positional[i] if i < len(positional) else f"arg{i}", code) for i, code in enumerate(tape.args)
    ]
    named += list(tape.kwargs.items())
    names: dict[TensorId, str] = {}
    for name, code in named:
        inside = list(dict.fromkeys(tensor_ids_in(code)))
        for position, tensor_id in enumerate(inside):
            names.setdefault(tensor_id, name if len(inside) == 1 else f"{name}_{position}")
    return tuple(names.values())[:count]


def operation_name(what: Any) -> str:
    """Return the name of a function or module for a reason."""
    if isinstance(what, nn.Module):
        return f"the module {type(what).__name__}"
    owner = getattr(what, "__self__", None)
    name = str(getattr(what, "__name__", type(what).__name__))
    return str(getattr(owner, "__name__", name)) if name == "__get__" else name


def short_repr(constant: Any) -> str:
    """Return a constant in a few letters, for a reason."""
    text = repr(constant) if type(constant) is not OpaqueArg else f"a {type(constant.object).__name__}"
    return "a tensor" if type(constant) is TensorId else text if len(text) <= 40 else text[:37] + "…"
