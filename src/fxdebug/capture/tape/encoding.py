"""Arguments and results of operations as inert codes: the tape keeps them, and a symbolic trace is matched with them.

The code of a tensor is its :class:`~fxdebug.capture.tensors.tensor_ref.TensorId`; lists, tuples and dicts stay what
they are; a ``torch.Size``, a named tuple, a dataclass, a ``ModelOutput`` or an ordered dict is a :class:`Struct`; any
other object is an :class:`OpaqueArg`, compared by identity, with codes of what it holds where that is known. A code
keeps no tensor alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import torch

from fxdebug.capture.replay.introspect import attributes_of, members_in, slots_of
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.torch_state.whose_code import answers_by_program, is_of_python

# Immutable like Python's numbers, but torch.fx has no name for them in code.
NUMPY_SCALARS = frozenset(np.sctypeDict.values()) - {np.object_, np.void}


# Types whose values are their own codes: two are equal if type and value are.
ATOMS = NUMPY_SCALARS | frozenset(
    (
        int, float, bool, str, type(None), complex, bytes, type, type(Ellipsis),
        torch.dtype, torch.device, torch.memory_format, torch.layout,
    )
)  # fmt: skip

_COMPLEX, _FLOATS = (complex, np.complexfloating), (float, np.floating)


def is_same(one: Any, other: Any) -> bool:
    """Are two values of one of these types the same in any computation? ``0.0`` and ``-0.0`` are not.

    >>> is_same(0.0, -0.0), is_same(float("nan"), float("nan")), is_same(2, 2)
    (False, True, True)
    """
    kind = type(one)
    if issubclass(kind, _COMPLEX) or (issubclass(kind, _FLOATS) and not one):
        return repr(one) == repr(other)
    return bool(one == other or (one != one and other != other))


def is_same_code(one: Any, other: Any) -> bool:
    """Are two codes the same? Objects compared by identity are, whatever they hold."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is OpaqueArg:
        return one.object is other.object
    if kind is tuple or kind is list:
        return len(one) == len(other) and all(map(is_same_code, one, other))
    if kind is dict:
        return have_same_keys(one, other) and all(map(is_same_code, one.values(), other.values()))
    if kind is Struct:
        return one.type is other.type and one.keys == other.keys and is_same_code(one.items, other.items)
    return one is other or is_same(one, other)


def have_same_keys(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    """Are the keys of two dicts the same, in the same order?"""
    return len(one) == len(other) and all(x is y or (type(x) is type(y) and x == y) for x, y in zip(one, other))


def are_plain_keys(keys: Iterable[Any]) -> bool:
    """Can these keys of a dict be hashed and compared without code of the program, which might count or draw?"""
    return all(_is_plain_key(key) for key in keys)


def _is_plain_key(key: Any) -> bool:
    kind: Any = type(key)
    if kind is str or kind in ATOMS:
        return True
    return are_plain_keys(key) if kind is tuple else not answers_by_program(kind)


class OpaqueArg:
    """An object that is compared by identity: a cache, a configuration, a generator.

    ``contents`` are the codes of what it held when a call returned it, or while a call had it as an argument
    (:func:`note_contents`); ``None`` where nothing but its identity is known.
    """

    __slots__ = ("contents", "object")

    def __init__(self, object: Any) -> None:
        self.object = object
        self.contents: Struct | None = None


class Struct:
    """An object made of members: its type, the names of its members if it has them, their codes."""

    __slots__ = ("items", "keys", "type")

    def __init__(self, type: type, keys: tuple[Any, ...] | None, items: list[Any]) -> None:
        self.type = type
        self.keys = keys
        self.items = items

    def with_items(self, items: list[Any]) -> Struct:
        """Return the code of an object of this kind with other members."""
        return Struct(self.type, self.keys, items)

    def build(self, items: list[Any]) -> Any:
        """Return an object of this kind with other members; no code of its class runs."""
        kind: Any = self.type
        if self.keys is None:  # torch's have no other way; a constructor of the program's may compute
            return kind(items) if is_torch_tuple(kind) else tuple.__new__(kind, items)
        members = dict(zip(self.keys, items))
        if kind is OrderedDict:
            return kind(members)
        if not issubclass(kind, dict):
            built = object.__new__(kind)
        else:
            base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
            built = base.__new__(kind)
            for key, item in members.items():
                base.__setitem__(built, key, item)
            built.__dict__.update(dict.fromkeys([field.name for field in dataclasses.fields(kind)]))
        in_slots = slots_of(kind)
        for name, item in members.items():
            if name in in_slots:  # works on frozen objects, too
                object.__setattr__(built, name, item)
            else:
                built.__dict__[name] = item
        return built


def is_torch_tuple(kind: type) -> bool:
    """Is it one of torch's own tuples: a ``torch.Size``, or what operations with several results return?"""
    return kind is torch.Size or hasattr(kind, "n_sequence_fields")


def members_of(struct: Any) -> tuple[tuple[Any, ...] | None, list[Any]] | None:
    """Return names and members of an object that is coded as a :class:`Struct`; ``None`` for any other object."""
    kind = type(struct)
    if hasattr(kind, "__del__"):  # one that is made anew would be finalized, too
        return None
    if issubclass(kind, tuple):
        return None if attributes_of(struct) else (None, list(tuple.__iter__(struct)))
    if kind is OrderedDict and not vars(struct) and {str, int}.issuperset(map(type, struct)):
        return tuple(struct), list(struct.values())
    if not dataclasses.is_dataclass(kind):
        return None
    if issubclass(kind, dict):  # ModelOutput: a dataclass whose items are its members that are not None
        base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
        keys = tuple(base.keys(struct))
        return (keys, list(base.values(struct))) if are_plain_keys(keys) else None
    members = members_in(struct)
    return None if members is None else (tuple(members), list(members.values()))


def tensor_ids_in(code: Any) -> Iterator[TensorId]:
    """Yield every tensor in a code, in order."""
    return (leaf for leaf in leaves_in(code) if type(leaf) is TensorId)


def opaque_objects_in(code: Any) -> Iterator[Any]:
    """Yield every object in a code that is compared by identity."""
    return (leaf.object for leaf in leaves_in(code) if type(leaf) is OpaqueArg)


def leaves_in(code: Any, in_objects: bool = True) -> Iterator[Any]:
    """Yield every leaf of a code, in order: what is neither a container nor a :class:`Struct`.

    An object compared by identity is a leaf, which what it holds follows (with ``in_objects``).
    """
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
    elif kind is OpaqueArg and code.contents is not None and in_objects:
        yield code
        inside = code.contents.items
    if inside is None:
        yield code
    else:
        for item in inside:
            yield from leaves_in(item, in_objects)


def map_leaves(
    code: Any, leaf: Callable[[Any], Any], struct: Callable[[Struct, list[Any]], Any] = Struct.with_items
) -> Any:
    """Return a code with each leaf replaced by the result of ``leaf``, and each Struct by that of ``struct``."""
    kind = type(code)
    if kind is tuple or kind is list:
        return kind([map_leaves(item, leaf, struct) for item in code])
    if kind is dict:
        return {key: map_leaves(item, leaf, struct) for key, item in code.items()}
    if kind is slice:
        return slice(*[map_leaves(bound, leaf, struct) for bound in (code.start, code.stop, code.step)])
    if kind is Struct:
        return struct(code, [map_leaves(item, leaf, struct) for item in code.items])
    return leaf(code)


# What objects hold ---------------------------------------------------------------------------------

_DEEPEST, _MOST_MEMBERS = 8, 200


class _HoldsItself(Exception):
    """Raised where an object is found inside itself: it has no contents that a graph could write down."""


State: TypeAlias = "dict[str, Any] | None"


def note_contents(
    code: Any, coded: Callable[[Any], Any], known: set[int], state: Callable[[Any], State] | None = None
) -> None:
    """Note what the objects in a code hold, and the objects in them; each object once, where it comes first.

    ``coded`` returns the code of a member. Objects whose ``id`` is in ``known`` are left out, and all that is noted is
    added to it. ``state`` returns the members of an object: those that it has now, by default.
    """
    for leaf in list(leaves_in(code)):
        if type(leaf) is OpaqueArg and leaf.contents is None:
            with contextlib.suppress(_HoldsItself):
                _note(leaf, coded, known, (), state or state_of)


def _note(
    opaque: OpaqueArg,
    coded: Callable[[Any], Any],
    known: set[int],
    inside: tuple[int, ...],
    state: Callable[[Any], State],
) -> None:
    thing = opaque.object
    if id(thing) in inside:
        raise _HoldsItself
    members = None if id(thing) in known or len(inside) > _DEEPEST else state(thing)
    if members is None or len(members) > _MOST_MEMBERS:
        return
    contents = Struct(type(thing), tuple(members), [coded(member) for member in members.values()])
    below = (*inside, id(thing))
    for leaf in list(leaves_in(contents)):
        if type(leaf) is OpaqueArg:
            _note(leaf, coded, known, below, state)
    known.add(id(thing))
    opaque.contents = contents


def state_of(thing: Any) -> State:
    """Return the attributes of an object that consists of them; ``None`` if it is more, or has code that would notice.

    An object that consists of its attributes can be made anew from them.
    """
    kind: Any = type(thing)
    members = members_in(thing) if _consists_of_attributes(kind) else None
    if members is None or not all(_is_read_as_it_is(kind, name) for name in members):
        return None
    return members


@functools.cache
def _is_read_as_it_is(kind: type, name: str) -> bool:
    """Does ``getattr`` return this attribute of an object as the object holds it? A property may compute another."""
    found = next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)
    return type(found) is types.MemberDescriptorType or not hasattr(type(found), "__set__")


@functools.cache
def _consists_of_attributes(kind: Any) -> bool:
    if issubclass(kind, _MORE_THAN_ATTRIBUTES) or "onfig" in kind.__name__ or is_of_python(kind.__module__):
        return False
    if kind.__getattribute__ is not object.__getattribute__ or hasattr(kind, "__del__") or hasattr(kind, "__next__"):
        return False
    try:
        object.__new__(kind)
    except TypeError:  # of a class written in C
        return False
    return True


_MORE_THAN_ATTRIBUTES = (
    torch.nn.Module, torch.Tensor, torch.Generator, BaseException, Enum, functools.partial, type, types.FunctionType,
    dict, list, tuple, set, frozenset, str, bytes, int, float, complex,
)  # fmt: skip
