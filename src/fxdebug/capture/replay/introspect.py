"""What an object holds, found without asking the object: no code of the program's runs."""

from __future__ import annotations

import functools
import sys
import sysconfig
import threading
import types
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

MOST_ITEMS = 5_000  # of a container that are looked at


def items_of(container: Any) -> list[Any]:
    """What a container of Python's own kinds, or of a class made from one, holds: the class is not asked."""
    kind = type(container)
    if issubclass(kind, dict):
        return list(islice(dict.values(container), MOST_ITEMS))
    base: Any = next((base for base in _ITERATED if issubclass(kind, base)), None)
    return [] if base is None else list(islice(base.__iter__(container), MOST_ITEMS))


_ITERATED = (list, tuple, set, frozenset, deque)


def attributes_of(thing: Any) -> dict[str, Any] | None:
    """An object's ``__dict__``, without asking the object; of a ``threading.local`` that of this thread."""
    kind = type(thing)
    ask: Any = threading.local if issubclass(kind, threading.local) else object
    try:
        own = ask.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return own if type(own) is dict else None


def slot_of(thing: Any, name: str) -> Any:
    """What an object keeps in a slot, ``MISSING`` if nothing."""
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return MISSING


MISSING = object()


@functools.cache
def slots_of(kind: type) -> tuple[str, ...]:
    """The names of what an object of this class keeps in slots, outside its ``__dict__``: not C's own members."""
    return tuple(
        [
            name
            for base in kind.__mro__
            if "__slots__" in base.__dict__
            for name, held in base.__dict__.items()
            if type(held) is _Slot
        ]
        if kind.__module__ not in sys.stdlib_module_names
        else []
    )


_Slot = types.MemberDescriptorType


def members_in(thing: Any) -> dict[str, Any] | None:
    """An object's attributes, those in slots first; ``None`` of one that can have none."""
    kind: Any = type(thing)
    own, names = attributes_of(thing), slots_of(kind)
    if not names:
        return own
    return {name: held for name in names if (held := slot_of(thing, name)) is not MISSING} | (own or {})


_PYTHONS = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_INSTALLED = ("site-packages", "dist-packages")  # in an environment of their own, a user's, the system's


@functools.cache
def is_ours(module: str) -> bool:
    """Is this a module of fxdebug? What it holds (recordings, of other threads too) is no part of the program."""
    return module.partition(".")[0] == "fxdebug"


@functools.cache
def is_of_python(module: str) -> bool:
    """Is this a module of Python's own library?"""
    return module.partition(".")[0] in sys.stdlib_module_names


@functools.cache
def is_library(module: str | None) -> bool:
    """Is this a module of Python, or of something installed, and not of the program?"""
    if not module or is_of_python(module):
        return True
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(module) or sys.modules.get(top), "__file__", None)
    if top == "fxdebug" or file is None:
        return top == "fxdebug"
    return file.startswith(_PYTHONS) or not set(_INSTALLED).isdisjoint(Path(file).parts)
