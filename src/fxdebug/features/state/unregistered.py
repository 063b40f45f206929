"""Modules in plain lists and dicts: no parameters of the model, and in no checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from fxdebug.capture.probe import members
from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.data.measures import counted

DEEPEST = 3  # containers in one another
PLAIN = (list, tuple, dict)


def find_unregistered(model: nn.Module) -> Iterator[Finding]:
    """Yield attributes that hold modules with weights of their own, in lists, tuples or dicts that torch does not see.

    One module in a list is often meant: a teacher, or the model around it, that is to stay out of the checkpoint.
    """
    modules = list(members.named_modules_of(model))
    known = {id(one) for _, one in modules} | {id(parameter) for _, parameter in members.named_parameters_of(model)}
    for path, module in modules:
        for name, thing in vars(module).items():
            if (name.startswith("_") and name in _OF_TORCH) or type(thing) not in PLAIN:
                continue
            held = {id(one): one for one in _modules(thing) if id(one) not in known and _has_own_weights(one, known)}
            if not held:
                continue
            weights = {id(each): each for one in held.values() for each in members.parameters_of(one)}
            size = sum(each.numel() for each in weights.values())
            learns = all(each.requires_grad for each in weights.values())
            yield Finding(
                rule="not loaded",
                severity=WARNING if len(held) > 1 and learns else ADVICE,
                path=path,
                call=f"{path}#0",
                op=type(module).__name__,
                what=f"{members.join(path, name)} is a plain {type(thing).__name__} of {counted(len(held), 'module')} "
                f"({counted(size, 'element')}): state_dict(), parameters() and to() leave them out, "
                "so that no checkpoint has them and no optimizer",
                measured=float(len(held)),
                advice="Use nn.ModuleList or nn.ModuleDict.",
            )


_OF_TORCH = frozenset(vars(nn.Module()))


def _has_own_weights(module: nn.Module, known: set[int]) -> bool:
    parameters = members.parameters_of(module)
    return bool(parameters) and not any(id(one) in known for one in parameters)


def _modules(thing: Any, depth: int = 0) -> Iterator[nn.Module]:
    """Yield the modules in a container of a plain class, and in those within it."""
    if isinstance(thing, nn.Module):
        yield thing
    elif depth < DEEPEST and type(thing) in PLAIN:
        for each in thing.values() if type(thing) is dict else thing:
            yield from _modules(each, depth + 1)
