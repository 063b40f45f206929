"""Names of classes, dtypes and devices as people write them; nothing of a metaclass is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_qualified_name: Callable[[type], str] = type.__dict__["__qualname__"].__get__


def type_name(kind: type) -> str:
    """Return a class's name without its module, as people write it; a property of its metaclass is not asked."""
    return _class_name(kind)


def class_names(kind: type) -> tuple[str, ...]:
    """Return the full names of a class and its bases, Python module first; nothing of a metaclass is asked."""
    return tuple([f"{_module_of(base)}.{_qualified_name(base)}" for base in kind.__mro__ if base is not object])


def _module_of(kind: type) -> str:
    found = kind.__dict__.get("__module__", "")
    return found if isinstance(found, str) else ""


_names: dict[Any, str] = {}  # of dtypes and devices; torch is slow to write one


def name_of(kind: torch.dtype | torch.device) -> str:
    """Return the name of a dtype or a device without ``torch.`` in front."""
    name = _names.get(kind)
    if name is None:
        name = _names[kind] = str(kind).removeprefix("torch.")
    return name
