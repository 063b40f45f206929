"""Modules in plain lists and dicts: no parameters of the model, and in no checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from fxdebug.capture.probe import members
from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.data.measures import counted


def find_unregistered(model: nn.Module) -> Iterator[Finding]:
    """Yield attributes that hold modules with weights of their own, in lists, tuples or dicts that torch does not see.

    One module in a list is often meant: a teacher, or the model around it, that is to stay out of the checkpoint.
    """
    known = {id(parameter) for parameter in members.parameters_of(model)}
    for path, module in members.named_modules_of(model):
        held: dict[str, dict[int, nn.Module]] = {}
        for place, one in members.unregistered_in(module):
            name, bracket, _ = place.partition("[")
            if bracket and (own := members.parameters_of(one)) and not any(id(each) in known for each in own):
                held.setdefault(name, {})[id(one)] = one
        for name, modules in held.items():
            weights = {id(each): each for one in modules.values() for each in members.parameters_of(one)}
            size = sum(each.numel() for each in weights.values())
            learns = all(each.requires_grad for each in weights.values())
            yield Finding(
                rule="not loaded",
                severity=WARNING if len(modules) > 1 and learns else ADVICE,
                path=path,
                call=f"{path}#0",
                op=type(module).__name__,
                what=f"{members.join(path, name)} is a plain {_kind(vars(module)[name])} of "
                f"{counted(len(modules), 'module')} ({counted(size, 'element')}): state_dict(), parameters() and to() "
                "leave them out, so that no checkpoint has them and no optimizer",
                measured=float(len(modules)),
                advice="Use nn.ModuleList or nn.ModuleDict.",
            )


def _kind(container: object) -> str:
    return next(kind.__name__ for kind in (list, tuple, dict) if isinstance(container, kind))
