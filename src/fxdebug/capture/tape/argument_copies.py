"""Copies of a call's opaque arguments (objects compared by identity), as they were when the call began.

The body may fill a cache or a list while it runs; a symbolic trace later begins with the content at the call's start.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from typing import Any

import torch

from fxdebug.capture.replay.introspect import attributes_of, members_in, slots_of
from fxdebug.capture.tape.encoding import ATOMS, are_plain_keys

_LASTING = (
    torch.nn.Module, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ModuleType, functools.partial, enum.Enum,
)  # fmt: skip
_CONTAINERS = (tuple, list, deque, set, dict, OrderedDict)
_SHARED = (*_LASTING, torch.Tensor, types.GeneratorType, torch.Generator)


def is_lasting(thing: Any) -> bool:
    """Is it a part of the program: a module, a function, a class? It is the same object in every run."""
    return issubclass(type(thing), _LASTING)


class ArgumentCopies:
    """A copy of a structure, and the original of each copy in it. Modules and configurations are shared.

    Tensors are shared, too, unless ``tensor`` is given: it returns what a copy has in the place of one.
    """

    __slots__ = ("_tensor", "copy", "pairs")

    def __init__(self, original: Any, tensor: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        self.pairs: dict[int, tuple[Any, Any]] = {}  # id of original → (copy, original kept alive)
        self._tensor = tensor
        self.copy = self._copied(original)

    def of(self, original: Any) -> Any:
        """Return the copy of one more structure."""
        return self._copied(original)

    def earlier(self) -> dict[int, Any]:
        """Return ``id`` of each original → its copy."""
        return {id(original): copy for copy, original in self.pairs.values() if copy is not original}

    def originals(self) -> dict[int, Any]:
        """Return ``id`` of each copy → its original."""
        return {id(copy): original for copy, original in self.pairs.values() if copy is not original}

    def are_as_before(self) -> bool:
        """Do all the originals still hold what they did? Tensors that were written to are the same tensors."""
        return all(
            copy is original or self._is_as_before(copy, original) for copy, original in list(self.pairs.values())
        )

    def has_refilled(self) -> bool:
        """Was an object changed that held tensors when the call began, such as a cache that came filled?"""
        return any(
            copy is not original
            and type(original) not in _CONTAINERS
            and any(issubclass(type(member), torch.Tensor) for member in (members_in(copy) or {}).values())
            and not self._is_as_before(copy, original)
            for copy, original in list(self.pairs.values())
        )

    def _is_as_before(self, copy: Any, original: Any) -> bool:
        kind = type(original)
        if kind is set:
            return bool(copy == original)
        if kind is dict or kind is OrderedDict:
            return list(map(id, copy)) == list(map(id, original)) and self._are(copy.values(), original.values())
        if kind in (tuple, list, deque):
            return self._are(copy, original)
        return self._is_as_before(members_in(copy), members_in(original))

    def _are(self, copies: Collection[Any], originals: Collection[Any]) -> bool:
        return len(copies) == len(originals) and all(
            copy is original or self.pairs.get(id(original), (original,))[0] is copy
            for copy, original in zip(copies, originals)
        )

    def _copied(self, original: Any) -> Any:
        known = self.pairs.get(id(original))
        if known is not None:
            return known[0]
        kind: Any = type(original)
        if self._tensor is not None and issubclass(kind, torch.Tensor):
            return self._tensor(original)
        if kind in ATOMS or issubclass(kind, _SHARED) or "onfig" in kind.__name__:
            return original
        copy: Any = original
        if kind is tuple:
            copy = tuple([self._copied(item) for item in original])
        elif kind is list or kind is deque:
            copy = self._remember(original, [] if kind is list else deque())
            copy.extend([self._copied(item) for item in original])
        elif kind is dict or kind is OrderedDict:
            if not are_plain_keys(original):
                return original
            copy = self._remember(original, kind())
            copy.update({key: self._copied(item) for key, item in original.items()})
        elif kind is set and are_plain_keys(original):
            copy = set(original)
        elif _has_members(original, kind):
            copy = self._object(original, kind)
        self._remember(original, copy)
        return copy

    def _object(self, original: Any, kind: Any) -> Any:
        try:
            copy: Any = object.__new__(kind)
        except TypeError:
            return original  # of a class written in C: it is shared
        self._remember(original, copy)
        in_slots = slots_of(kind)
        for name, member in (members_in(original) or {}).items():
            if name in in_slots:  # works on frozen objects, too
                object.__setattr__(copy, name, self._copied(member))
            else:
                attributes_of(copy)[name] = self._copied(member)  # type: ignore[index]
        return copy

    def _remember(self, original: Any, copy: Any) -> Any:
        self.pairs[id(original)] = (copy, original)
        return copy


def _has_members(thing: Any, kind: Any) -> bool:
    """Is it an object that consists of attributes or slots? A copy of one with ``__del__`` would be finalized, too."""
    if issubclass(kind, (dict, tuple, list)) or hasattr(kind, "__del__"):
        return False
    return attributes_of(thing) is not None or bool(slots_of(kind))
