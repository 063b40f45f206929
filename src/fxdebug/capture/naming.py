"""What operations, arguments and constants are called, in graphs and in reasons."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from fxdebug.capture.body import Body
from fxdebug.capture.coding import Opaque, uids_in
from fxdebug.capture.seen import Uid


def argument_names(forward: Callable[..., Any], body: Body, count: int) -> tuple[str, ...]:
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
    names: dict[Uid, str] = {}
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
    text = repr(thing) if type(thing) is not Opaque else f"a {type(thing.thing).__name__}"
    return "a tensor" if type(thing) is Uid else text if len(text) <= 40 else text[:37] + "…"
