"""Any Python object → the items of a trace: containers keep their shape, tensors become values.

Lists, tuples, dicts and their subclasses, dataclasses, sets and objects with attributes are opened;
everything else is shown by its ``repr``. Cycles end in a :class:`~fxdebug.data.values.Thing` that says so.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import re
import threading
import types
import weakref
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any

import torch

from fxdebug.capture.tensors.describe import type_name
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.tensors.value_table import Say, ValueTable, silence
from fxdebug.data.values import Group, Item, Thing, as_item
from fxdebug.errors import first_line

DEEPEST = 200  # containers in containers: JSON readers give up at about a thousand
MOST = 100_000  # items in all, a container counting for eight: lists of one and the same list are endless to walk
NEAR = 2_000  # objects looked at for whether there is a tensor near

_ATOMS = frozenset((type(None), bool, int, float, str, complex, bytes))
_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]+")


# Opening these finds no activations, only the model or the interpreter.
_CLOSED = (
    torch.nn.Module, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType,
    torch.Generator, torch.dtype, torch.device, torch.layout, torch.memory_format, functools.partial,
)  # fmt: skip


# Not lists or tuples, but what is in them can be looked at without using it up.
_LISTED = (collections.deque, KeysView, ValuesView, ItemsView)


def without_addresses(text: str) -> str:
    """A repr that is the same in every run: memory addresses become ``0xXXXXXXXX``.

    >>> without_addresses("<Opaque object at 0x7f00deadbeef>")
    '<Opaque object at 0xXXXXXXXX>'
    """
    return _ADDRESS.sub("at 0xXXXXXXXX", text)


class _How(threading.local):
    """What the thread at work was asked for."""

    keep = True
    reopen = True
    left = MOST  # items that may still be looked at
    too_deep = False  # was there an object whose repr runs too deep?


class Structure:
    """Turns objects into items for one trace.

    ``shown`` gives the ``repr`` of an object under the print options the text is wanted in.
    """

    def __init__(self, values: ValueTable, say: Say, shown: Callable[[Any], str] = repr) -> None:
        self._values = values
        self._say = say
        self._shown = shown
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}  # an id counts while its object is alive
        self._numbering = threading.Lock()
        self._number_count = 0
        self._how = _How()

    def quiet(self) -> None:
        """Nobody takes notes any more."""
        self._say = silence

    def item(self, thing: Any, *, keep: bool = True, reopen: bool = True) -> Item:
        """The item for any object. ``keep``: store the tensors' data too. ``reopen``: look again inside
        objects met before (they may have changed); without it they are opened at first sight only."""
        if type(thing) in PLAIN:
            return self._values.see(thing, keep)
        self._how.keep, self._how.reopen = keep, reopen
        self._how.left, self._how.too_deep = MOST, False
        return self._item(thing, ())

    def _item(self, thing: Any, above: tuple[int, ...]) -> Item:
        kind = type(thing)
        if kind in PLAIN:
            return self._values.see(thing, self._how.keep)
        if kind in _ATOMS:
            return as_item(thing)
        if issubclass(kind, torch.Tensor) or _has_local_part(thing):
            return self._tensor(thing)
        if id(thing) in above:
            return Thing(type_name(kind), f"<cycle: the {type_name(kind)} {len(above) - above.index(id(thing))} up>")
        if len(above) >= DEEPEST:
            self._say(f"containers nested deeper than {DEEPEST} are not followed")
            return Thing(type_name(kind), f"<{type_name(kind)} nested deeper than {DEEPEST}>")
        try:
            return self._opened(thing, kind, (*above, id(thing)))
        except RecursionError:
            raise
        except Exception as error:
            self._say(f"a {type_name(kind)} was not opened: {type(error).__name__}: {first_line(error)}")
            return Thing(type_name(kind), f"<{type_name(kind)} that cannot be opened>")

    def _tensor(self, thing: Any) -> Item:
        try:
            return self._values.see(thing, self._how.keep)
        except Exception as error:
            self._say(f"a {type(thing).__name__} was not recorded: {type(error).__name__}: {first_line(error)}")
            return Thing(type_name(type(thing)), f"<{type_name(type(thing))} that cannot be described>")

    def _opened(self, thing: Any, kind: type, above: tuple[int, ...]) -> Item:
        if issubclass(kind, (list, tuple)):
            return Group("sequence", type_name(kind), self._items(thing, above), _field_names(thing, kind))
        if issubclass(kind, dict):
            keys = self._keys(thing)
            return Group("mapping", type_name(kind), self._items(thing.values(), above), keys)
        text = self._text(thing)
        number = self._number(thing)
        members = None if number < 0 else self._members(thing, kind)
        if members is None:
            return Thing(type_name(kind), text, abs(number) - 1)
        names, inside = members
        return Group("object", type_name(kind), self._items(inside, above), names, text, abs(number) - 1)

    def _items(self, things: Any, above: tuple[int, ...]) -> tuple[Item, ...]:
        room = self._how.left
        things = list(itertools.islice(things, room + 1))
        if len(things) > room:
            things.pop()
            self._say(f"containers of more than {MOST} items in all: what comes after them is not recorded")
        self._how.left -= min(len(things) + 8, room)
        return tuple([self._item(thing, above) for thing in things])

    def _keys(self, mapping: Any) -> tuple[Any, ...]:
        return tuple([self._key(key) for key in itertools.islice(mapping, self._how.left)])

    def _members(self, thing: Any, kind: type) -> tuple[tuple[Any, ...] | None, Any] | None:
        """What an object holds: (names, members), with no names for a set; ``None`` if it is not to be opened."""
        if issubclass(kind, (set, frozenset)):
            return None, sorted(itertools.islice(thing, self._how.left + 1), key=self._order)
        if issubclass(kind, _LISTED):
            return None, thing
        if kind is types.MappingProxyType:
            return self._keys(thing), thing.values()
        if issubclass(kind, _CLOSED) or kind.__module__ == "builtins":
            return None
        if dataclasses.is_dataclass(kind):
            pairs = [(f.name, getattr(thing, f.name)) for f in dataclasses.fields(thing) if hasattr(thing, f.name)]
        else:
            pairs = [(name, member) for name, member in _attributes(thing, kind)]
        if not _tensor_near([member for _, member in pairs]):
            return None
        return tuple(name for name, _ in pairs), [member for _, member in pairs]

    def _number(self, thing: Any) -> int:
        """One more than the object's number, negative when it was opened before and need not be again."""
        reference, number = self._numbers.get(id(thing), (None, 0))
        if reference is not None and reference() is thing:
            return number if self._how.reopen else -number
        with self._numbering:
            self._number_count += 1
            number = self._number_count
        with contextlib.suppress(TypeError):  # not weakly referable: a later sighting gets a number of its own
            self._numbers[id(thing)] = (weakref.ref(thing), number)
        return number

    def _key(self, key: Any) -> Any:
        if type(key) in _ATOMS:
            return as_item(key)
        if isinstance(key, str):
            return str.__str__(key)
        return Thing(type_name(type(key)), self._text(key))

    def _order(self, thing: Any) -> str:
        return repr(thing) if type(thing) in _ATOMS else self._text(thing)

    def _text(self, thing: Any) -> str:
        if self._how.too_deep:
            return f"<{type_name(type(thing))} inside an object whose repr runs too deep>"
        try:
            return without_addresses(self._shown(thing))
        except Exception as error:
            self._how.too_deep = isinstance(error, RecursionError)
            self._say(f"the repr of a {type_name(type(thing))} raised {type(error).__name__}: {first_line(error)}")
            return f"<{type_name(type(thing))} object whose repr raised {type(error).__name__}: {first_line(error)}>"


def _has_local_part(thing: Any) -> bool:
    """Is it like a DTensor? Objects whose ``__getattr__`` raises, or knows every name, are not."""
    try:
        return issubclass(type(getattr(thing, "_local_tensor", None)), torch.Tensor)
    except Exception:
        return False


def _tensor_near(members: list[Any]) -> bool:
    """Does any of an object's members hold a tensor, or anything near? Objects without one are shown, not opened."""
    pending = collections.deque((member, 0) for member in members)
    seen: set[int] = set()
    while pending and len(seen) < NEAR:
        thing, depth = pending.popleft()
        kind = type(thing)
        if issubclass(kind, torch.Tensor):
            return True
        if depth < 4 and kind not in _ATOMS and not issubclass(kind, _CLOSED) and id(thing) not in seen:
            seen.add(id(thing))
            pending.extend((inner, depth + 1) for inner in _inside(thing, kind))
    return False


def _inside(thing: Any, kind: type) -> list[Any]:
    try:
        if issubclass(kind, (dict, types.MappingProxyType)):
            return list(itertools.islice(thing.values(), 64))
        if issubclass(kind, (list, tuple, set, frozenset, *_LISTED)):
            return list(itertools.islice(thing, 64))
        return [member for _, member in _attributes(thing, kind)]
    except Exception:
        return []  # it cannot be looked at


def _field_names(thing: Any, kind: type) -> tuple[str, ...] | None:
    """The field names of a named tuple, or of one of torch's result tuples (``topk``: values, indices)."""
    names = getattr(kind, "_fields", None)
    if names is None and hasattr(kind, "n_sequence_fields"):
        names = getattr(kind, "__match_args__", None)
    return tuple(names) if isinstance(names, tuple) and len(names) == len(thing) else None


def _attributes(thing: Any, kind: type) -> list[tuple[str, Any]]:
    """Instance attributes, from ``__dict__`` and ``__slots__``; properties are not run."""
    found = list(getattr(thing, "__dict__", {}).items())
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            member = getattr(thing, name, _MISSING)
            if member is not _MISSING:
                found.append((name, member))
    return found


_MISSING = object()
