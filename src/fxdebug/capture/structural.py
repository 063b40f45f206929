"""Copies of the structure around tensors: what an opaque argument, a key–value cache say, was when a call began.

Containers and objects are copied, tensors, modules, configurations and functions are shared.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from typing import Any

import torch

from fxdebug.capture.coding import ATOMS

_SHARED = (
    torch.Tensor, torch.nn.Module, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType,
    types.ModuleType, types.GeneratorType, torch.Generator,
)  # fmt: skip


class Copies:
    """One copy of a structure, and which copy stands for which original."""

    __slots__ = ("copy", "pairs")

    def __init__(self, thing: Any) -> None:
        self.pairs: dict[int, tuple[Any, Any]] = {}  # id of original → (copy, original kept alive)
        self.copy = self._copied(thing)

    def originals(self) -> dict[int, Any]:
        """``id`` of each copy → the original it stands for."""
        return {id(copy): original for copy, original in self.pairs.values() if copy is not original}

    def _copied(self, thing: Any) -> Any:
        known = self.pairs.get(id(thing))
        if known is not None:
            return known[0]
        kind = type(thing)
        if kind in ATOMS or issubclass(kind, _SHARED) or "onfig" in kind.__name__:
            return thing
        made: Any = thing
        if kind is tuple:
            made = tuple([self._copied(item) for item in thing])
        elif kind is list or kind is deque:
            made = self._remember(thing, [] if kind is list else deque())
            made.extend([self._copied(item) for item in thing])
        elif kind is dict or kind is OrderedDict:
            made = self._remember(thing, kind())
            made.update({key: self._copied(item) for key, item in thing.items()})
        elif kind is set:
            made = set(thing)
        elif hasattr(thing, "__dict__") and not issubclass(kind, (dict, tuple, list)):
            made = self._object(thing, kind)
        self._remember(thing, made)
        return made

    def _object(self, thing: Any, kind: type) -> Any:
        try:
            made: Any = object.__new__(kind)
        except TypeError:
            return thing  # made by C: it is shared
        self._remember(thing, made)
        made.__dict__.update({name: self._copied(member) for name, member in thing.__dict__.items()})
        return made

    def _remember(self, original: Any, copy: Any) -> Any:
        self.pairs[id(original)] = (copy, original)
        return copy
