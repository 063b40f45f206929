"""Copies of a call's opaque arguments (objects compared by identity), as they were when the call began.

The body may fill a cache or a list while it runs; a symbolic trace later begins with the content at the call's start.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from enum import Enum
from typing import Any

import torch

from fxdebug.capture.tape.encoding import ATOMS

_SHARED = (
    torch.Tensor, torch.nn.Module, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    types.ModuleType, types.GeneratorType, torch.Generator, Enum,
)  # fmt: skip


class ArgumentCopies:
    """A copy of a structure, and the original of each copy in it. Tensors, modules and configurations are shared."""

    __slots__ = ("copy", "pairs")

    def __init__(self, original: Any) -> None:
        self.pairs: dict[int, tuple[Any, Any]] = {}  # id of original → (copy, original kept alive)
        self.copy = self._copied(original)

    def originals(self) -> dict[int, Any]:
        """Return ``id`` of each copy → its original."""
        return {id(copy): original for copy, original in self.pairs.values() if copy is not original}

    def _copied(self, original: Any) -> Any:
        known = self.pairs.get(id(original))
        if known is not None:
            return known[0]
        kind = type(original)
        if kind in ATOMS or issubclass(kind, _SHARED) or "onfig" in kind.__name__:
            return original
        copy: Any = original
        if kind is tuple:
            copy = tuple([self._copied(item) for item in original])
        elif kind is list or kind is deque:
            copy = self._remember(original, [] if kind is list else deque())
            copy.extend([self._copied(item) for item in original])
        elif kind is dict or kind is OrderedDict:
            copy = self._remember(original, kind())
            copy.update({key: self._copied(item) for key, item in original.items()})
        elif kind is set:
            copy = set(original)
        elif hasattr(original, "__dict__") and not issubclass(kind, (dict, tuple, list)):
            copy = self._object(original, kind)
        self._remember(original, copy)
        return copy

    def _object(self, original: Any, kind: type) -> Any:
        try:
            copy: Any = object.__new__(kind)
        except TypeError:
            return original  # of a class written in C: it is shared
        self._remember(original, copy)
        copy.__dict__.update({name: self._copied(member) for name, member in original.__dict__.items()})
        return copy

    def _remember(self, original: Any, copy: Any) -> Any:
        self.pairs[id(original)] = (copy, original)
        return copy
