"""Arguments and results of operations as inert codes: what the tape keeps, and what a trace is matched with.

A tensor is its :class:`~fxdebug.capture.values.Uid`; lists, tuples and dicts are themselves; a
``torch.Size``, a named tuple, a dataclass, a ``ModelOutput`` or an ordered dict is a :class:`Struct`; any other object
is an :class:`Opaque`, told apart by identity. No tensor is kept alive by a code.
"""

from __future__ import annotations

import dataclasses
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from fxdebug.capture.replay.introspect import members_in, slots_of
from fxdebug.capture.tensors.tensor_ref import TensorId

# Numbers of numpy's own: they cannot be changed either. What they are called in code, torch.fx does not know.
NUMPYS = frozenset(np.sctypeDict.values()) - {np.object_, np.void}


# Values that are their own code: equal when type and value are.
ATOMS = NUMPYS | frozenset(
    (
        int, float, bool, str, type(None), complex, bytes, type, type(Ellipsis),
        torch.dtype, torch.device, torch.memory_format, torch.layout,
    )
)  # fmt: skip

_COMPLEX, _FLOATS = (complex, np.complexfloating), (float, np.floating)


def is_same(one: Any, other: Any) -> bool:
    """Are two values of one of these types the same to whoever computes with them? ``0.0`` and ``-0.0`` are not.

    >>> is_same(0.0, -0.0), is_same(float("nan"), float("nan")), is_same(2, 2)
    (False, True, True)
    """
    if isinstance(one, _COMPLEX) or (isinstance(one, _FLOATS) and not one):
        return repr(one) == repr(other)
    return bool(one == other or (one != one and other != other))


def have_same_keys(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    """Are the keys of two dicts the same, in the same order?"""
    return len(one) == len(other) and all(type(x) is type(y) and x == y for x, y in zip(one, other))


class OpaqueArg:
    """An object that is compared by identity: a cache, a configuration, a generator."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing


class Struct:
    """An object made of members: its type, the names of its members if it has them, their codes."""

    __slots__ = ("items", "keys", "type")

    def __init__(self, type: type, keys: tuple[Any, ...] | None, items: list[Any]) -> None:
        self.type = type
        self.keys = keys
        self.items = items

    def build(self, items: list[Any]) -> Any:
        """An object of this kind with other members."""
        kind: Any = self.type
        if self.keys is None:  # C's own have no other way in; a class of the program's may compute in its own
            return kind(items) if is_of_c(kind) else tuple.__new__(kind, items)
        members = dict(zip(self.keys, items))
        if kind is OrderedDict:
            return kind(members)
        if not issubclass(kind, dict):
            made = object.__new__(kind)
        else:
            base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
            made = base.__new__(kind)
            for key, item in members.items():
                base.__setitem__(made, key, item)
            made.__dict__.update(dict.fromkeys([field.name for field in dataclasses.fields(kind)]))
        in_slots = slots_of(kind)
        for name, item in members.items():
            if name in in_slots:  # also of a frozen one
                object.__setattr__(made, name, item)
            else:
                made.__dict__[name] = item
        return made


def is_of_c(kind: type) -> bool:
    """Is it one of torch's own tuples: a ``torch.Size``, or what operations with several results return?"""
    return kind is torch.Size or hasattr(kind, "n_sequence_fields")


def members_of(thing: Any) -> tuple[tuple[Any, ...] | None, list[Any]] | None:
    """Names and members of an object that is coded as a :class:`Struct`, or ``None`` if it is not one."""
    kind = type(thing)
    if issubclass(kind, tuple):
        return None if getattr(thing, "__dict__", None) else (None, list(tuple.__iter__(thing)))
    if kind is OrderedDict and not vars(thing) and {str, int}.issuperset(map(type, thing)):
        return tuple(thing), list(thing.values())
    if not dataclasses.is_dataclass(kind):
        return None
    if issubclass(kind, dict):  # ModelOutput: a dataclass whose items are its members that are not None
        return tuple(thing.keys()), [thing[key] for key in thing]
    members = members_in(thing)
    return None if members is None else (tuple(members), list(members.values()))


def uids_in(code: Any) -> Iterator[TensorId]:
    """Every tensor in a code, in order."""
    return (leaf for leaf in _leaves(code) if type(leaf) is TensorId)


def opaque_in(code: Any) -> Iterator[Any]:
    """Every object in a code that is compared by identity."""
    return (leaf.thing for leaf in _leaves(code) if type(leaf) is OpaqueArg)


def _leaves(code: Any) -> Iterator[Any]:
    kind = type(code)
    inside: Any = None
    if kind is tuple or kind is list:
        inside = code
    elif kind is dict:
        inside = code.values()
    elif kind is Struct:
        inside = code.items
    elif kind is slice:
        inside = code.start, code.stop, code.step
    if inside is None:
        yield code
    else:
        for item in inside:
            yield from _leaves(item)


def again(code: Struct, items: list[Any]) -> Struct:
    """The same kind of object, with other members."""
    return Struct(code.type, code.keys, items)


def rebuilt(code: Any, leaf: Callable[[Any], Any], struct: Callable[[Struct, list[Any]], Any] = again) -> Any:
    """A code with other leaves (what is no container), each made by ``leaf`` from the one that stands there."""
    kind = type(code)
    if kind is tuple or kind is list:
        return kind([rebuilt(item, leaf, struct) for item in code])
    if kind is dict:
        return {key: rebuilt(item, leaf, struct) for key, item in code.items()}
    if kind is slice:
        return slice(*[rebuilt(bound, leaf, struct) for bound in (code.start, code.stop, code.step)])
    if kind is Struct:
        return struct(code, [rebuilt(item, leaf, struct) for item in code.items])
    return leaf(code)


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
