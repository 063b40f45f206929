"""Name what refers to an object: an attribute of a module, a global, a variable of a function, through containers."""

from __future__ import annotations

import gc
import types
from collections import deque
from typing import Any

from torch import nn

from fxdebug.errors import with_article

MOST_LEVELS = 4  # containers between the object and the named holder
_CONTAINERS = (list, tuple, set, deque, dict)


def holder_of(content: object, besides: object = None) -> str:
    """Return words for what keeps an object alive, or nothing where Python's garbage collector knows no holder.

    ``besides`` is a container of the caller's, which does not count.

    >>> class Owner: ...
    >>> owner = Owner()
    >>> owner.kept = [object()]
    >>> holder_of(owner.kept[0])
    'Owner.kept (a list of 1)'
    """
    level: list[tuple[object, str]] = [(content, "")]
    known = {id(level), id(content), id(besides)}
    for _ in range(MOST_LEVELS):
        above: list[tuple[object, str]] = []
        known.add(id(above))
        known.update(map(id, level))
        for inner, words in level:
            for owner in _referrers(inner, known):
                name = _name_in(owner, inner, known)
                if name:
                    return f"{name}{words}"
                if isinstance(owner, _CONTAINERS):
                    known.add(id(owner))
                    above.append((owner, words or f" ({with_article(type(owner).__name__)} of {len(owner)})"))
        level = above
    return next((words.strip(" ()") for _, words in level), "")


def _referrers(content: object, known: set[int]) -> list[object]:
    """Return what refers to an object, without the frames and lists of this search."""
    found = gc.get_referrers(content)
    known.add(id(found))
    ours = [x for x in found if id(x) not in known and not isinstance(x, (types.FrameType, types.GeneratorType))]
    known.add(id(ours))
    return ours


def _name_in(owner: object, content: object, known: set[int]) -> str:
    """Return the name that an owner has for its content, where it is one that people know."""
    if isinstance(owner, types.CellType):
        return _variable(owner, known)
    attributes: Any = owner if isinstance(owner, dict) else getattr(owner, "__dict__", None)
    if not isinstance(attributes, dict) or isinstance(owner, type):
        return ""
    key = next((key for key, item in attributes.items() if item is content), None)
    if key is None:
        return ""
    if attributes is not owner:
        return f"{_kind(owner)}.{key}"
    holders = _referrers(owner, known)
    for holder in holders:
        if getattr(holder, "__dict__", None) is owner:
            return f"{_kind(holder)}.{key}"
    return ""


def _variable(cell: types.CellType, known: set[int]) -> str:
    for closure in _referrers(cell, known):
        if isinstance(closure, tuple):
            for function in _referrers(closure, known):
                if isinstance(function, types.FunctionType) and function.__closure__ is closure:
                    name = function.__code__.co_freevars[closure.index(cell)]
                    return f"the variable {name} of {function.__qualname__}"
    return ""


def _kind(holder: object) -> str:
    if isinstance(holder, types.ModuleType):
        return holder.__name__
    kind = type(holder).__name__
    return f"the module {kind}" if isinstance(holder, nn.Module) else kind
