"""Read what an object holds without asking it: no code of the program runs."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch import nn

from fxdebug.capture.torch_state.whose_code import class_attribute

MAX_ITEMS = 5_000  # read from one container at most
MISSING = object()  # in place of the content of a variable that is not set


# Contents ----------------------------------------------------------------------------------------


def items_of(container: Any) -> list[Any]:
    """Return the items of a built-in container (the values of a dict) without calling methods of a subclass."""
    kind = type(container)
    if issubclass(kind, dict):
        return list(islice(dict.values(container), MAX_ITEMS))
    base: Any = next((base for base in _ITERATED if issubclass(kind, base)), None)
    return [] if base is None else list(islice(base.__iter__(container), MAX_ITEMS))


_ITERATED = (list, tuple, set, frozenset, deque)


def attributes_of(thing: Any) -> dict[str, Any] | None:
    """Return an object's ``__dict__``, or ``None`` if it has none; a ``threading.local`` has one for each thread."""
    kind = type(thing)
    if not issubclass(type(class_attribute(kind, "__dict__")), _OF_C):
        return None  # a property of the program's
    base: Any = threading.local if issubclass(kind, threading.local) else object
    try:
        attributes = base.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


_OF_C = (types.GetSetDescriptorType, types.MemberDescriptorType, type(None))


def slot_of(thing: Any, name: str) -> Any:
    """Return the content of an object's slot, ``MISSING`` if it is not set, or a property has taken its place."""
    if type(class_attribute(type(thing), name)) is not types.MemberDescriptorType:
        return MISSING
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return MISSING


@functools.cache
def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that a class of Python code declares, without members of C structs."""
    return tuple(
        [
            name
            for base in kind.__mro__
            if "__slots__" in base.__dict__
            for name, attribute in base.__dict__.items()
            if type(attribute) is types.MemberDescriptorType
        ]
        if kind.__module__ not in sys.stdlib_module_names
        else []
    )


def members_in(thing: Any) -> dict[str, Any] | None:
    """Return an object's attributes, those in slots first; ``None`` if it can have none."""
    kind: Any = type(thing)
    attributes, names = attributes_of(thing), slots_of(kind)
    if not names:
        return attributes
    slots = {name: content for name in names if (content := slot_of(thing, name)) is not MISSING}
    return slots | (attributes or {})


def dicts_of(module: nn.Module) -> Iterator[dict[Any, Any]]:
    """Yield the dicts that belong to one module alone: its attributes, parameters, buffers and submodules."""
    yield module.__dict__
    for name in ("_parameters", "_buffers", "_modules"):
        content = module.__dict__.get(name)
        if isinstance(content, dict):
            yield content
