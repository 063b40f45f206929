"""Any Python object → the items of a trace: containers keep their shape, tensors become values.

Lists, tuples, dicts and their subclasses, dataclasses, sets and objects with attributes are opened;
everything else is shown by its ``repr``. A cycle ends in a :class:`~fxdebug.data.values.Thing` that says so.
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

from fxdebug.capture.replay.introspect import attributes_of
from fxdebug.capture.tensors.kept_data import AddNote
from fxdebug.capture.tensors.shown_text import text_of
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.tensors.type_names import type_name
from fxdebug.capture.tensors.value_table import ValueTable, ignore_note
from fxdebug.data.values import Group, Item, Thing, as_item
from fxdebug.errors import first_line, with_article

DEEPEST = 200  # containers in containers: JSON readers give up at about a thousand
MOST = 100_000  # items in all, a container counts as eight: lists that hold one list many times are endless to walk
SEARCHED = 2_000  # objects that are searched for a tensor

_ATOMS = frozenset((type(None), bool, int, float, str, complex, bytes))
_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]+")


# Never opened: they hold no activations, only parts of the model or the interpreter.
_CLOSED = (
    torch.nn.Module, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType,
    torch.Generator, torch.dtype, torch.device, torch.layout, torch.memory_format, functools.partial,
)  # fmt: skip


# Neither lists nor tuples, but their items can be read without using them up.
_ITERABLE = (collections.deque, KeysView, ValuesView, ItemsView)


def without_addresses(text: str) -> str:
    """Replace memory addresses in a repr with ``0xXXXXXXXX``, so that it is the same in every run.

    >>> without_addresses("<Opaque object at 0x7f00deadbeef>")
    '<Opaque object at 0xXXXXXXXX>'
    """
    return _ADDRESS.sub("at 0xXXXXXXXX", text)


class _Options(threading.local):
    """The options of the item that a thread is building, and how much of it may still be walked."""

    keep = True
    reopen = True
    left = MOST  # items that may still be walked
    repr_too_deep = False  # did the repr of an object in it exceed the recursion limit?


class ItemBuilder:
    """Builds the items of one trace from Python objects.

    ``note`` takes the text of each note on the current call; ``shown`` makes the text of an object, as ``repr`` does.
    """

    def __init__(self, values: ValueTable, note: AddNote, shown: Callable[[Any], str] = repr) -> None:
        self._values = values
        self._note = note
        self._shown = shown
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}  # an id counts while its object is alive
        self._numbering = threading.Lock()
        self._number_count = 0
        self._options = _Options()

    def release_notes(self) -> None:
        """Let go of the recorder that takes notes: the two would refer to each other."""
        self._note = ignore_note

    def build(self, obj: Any, *, keep: bool = True, reopen: bool = True) -> Item:
        """Build the item of any object.

        ``keep``: store the data of its tensors, too. ``reopen``: if an object was opened before, open it again, as it
        may have changed; without this option only its number is given.
        """
        if type(obj) in PLAIN:
            return self._values.value_of(obj, keep)
        self._options.keep, self._options.reopen = keep, reopen
        self._options.left, self._options.repr_too_deep = MOST, False
        return self._build(obj, ())

    def _build(self, obj: Any, above: tuple[int, ...]) -> Item:
        kind = type(obj)
        if kind in PLAIN:
            return self._values.value_of(obj, self._options.keep)
        if kind in _ATOMS:
            return as_item(obj)
        if issubclass(kind, torch.Tensor) or _has_local_part(obj):
            return self._tensor(obj)
        if id(obj) in above:
            return Thing(type_name(kind), f"<cycle: the {type_name(kind)} {len(above) - above.index(id(obj))} up>")
        if len(above) >= DEEPEST:
            self._note(f"containers nested deeper than {DEEPEST} are not followed")
            return Thing(type_name(kind), f"<{type_name(kind)} nested deeper than {DEEPEST}>")
        try:
            return self._opened(obj, kind, (*above, id(obj)))
        except RecursionError:
            raise
        except Exception as error:
            self._note(f"{with_article(type_name(kind))} was not opened: {type(error).__name__}: {first_line(error)}")
            return Thing(type_name(kind), f"<{type_name(kind)} that cannot be opened>")

    def _tensor(self, obj: Any) -> Item:
        try:
            return self._values.value_of(obj, self._options.keep)
        except Exception as error:
            self._note(
                f"{with_article(type(obj).__name__)} was not recorded: {type(error).__name__}: {first_line(error)}"
            )
            return Thing(type_name(type(obj)), f"<{type_name(type(obj))} that cannot be described>")

    def _opened(self, obj: Any, kind: type, above: tuple[int, ...]) -> Item:
        held = _held(obj, kind)
        if held is not None:
            keys, inside = held
            if keys is None:
                return Group("sequence", type_name(kind), self._items(inside, above), _field_names(obj, kind))
            shown = self._keys(keys)  # first: the items count for how many may still be walked
            return Group("mapping", type_name(kind), self._items(inside, above), shown)
        text = self._text(obj)
        number = self._number(obj)
        members = None if number < 0 else self._members(obj, kind)
        if members is None:
            return Thing(type_name(kind), text, abs(number) - 1)
        names, inside = members
        return Group("object", type_name(kind), self._items(inside, above), names, text, abs(number) - 1)

    def _items(self, objects: Any, above: tuple[int, ...]) -> tuple[Item, ...]:
        room = self._options.left
        objects = list(itertools.islice(objects, room + 1))
        if len(objects) > room:
            objects.pop()
            self._note(f"containers of more than {MOST} items in all: what comes after them is not recorded")
        self._options.left -= min(len(objects) + 8, room)
        return tuple([self._build(obj, above) for obj in objects])

    def _keys(self, mapping: Any) -> tuple[Any, ...]:
        return tuple([self._key(key) for key in itertools.islice(mapping, self._options.left)])

    def _members(self, obj: Any, kind: type) -> tuple[tuple[Any, ...] | None, Any] | None:
        """Return (names, members) of an object, without names for a set; ``None`` if it is not to be opened."""
        if issubclass(kind, (set, frozenset)):
            inside = set.__iter__(obj) if issubclass(kind, set) else frozenset.__iter__(obj)
            return None, sorted(itertools.islice(inside, self._options.left + 1), key=self._order)
        if issubclass(kind, _ITERABLE):
            return None, obj
        if kind is types.MappingProxyType:
            return self._keys(obj), obj.values()
        if issubclass(kind, _CLOSED) or kind.__module__ == "builtins":
            return None
        if dataclasses.is_dataclass(kind):
            fields = {field.name: field.default for field in dataclasses.fields(kind)}
            members = fields | dict(_attributes(obj, kind))  # a field that nobody set has its default in the class
            pairs = [(name, members[name]) for name in fields if members[name] is not dataclasses.MISSING]
        else:
            pairs = [(name, member) for name, member in _attributes(obj, kind)]
        if not _has_tensor_inside([member for _, member in pairs]):
            return None
        return tuple(name for name, _ in pairs), [member for _, member in pairs]

    def _number(self, obj: Any) -> int:
        """Return one more than the object's number, negative if it was opened before and need not be again."""
        reference, number = self._numbers.get(id(obj), (None, 0))
        if reference is not None and reference() is obj:
            return number if self._options.reopen else -number
        with self._numbering:
            self._number_count += 1
            number = self._number_count
        with contextlib.suppress(TypeError):  # not weakly referable: the next time it gets another number
            self._numbers[id(obj)] = (weakref.ref(obj), number)
        return number

    def _key(self, key: Any) -> Any:
        if type(key) in _ATOMS:
            return as_item(key)
        if issubclass(type(key), str):
            return str.__str__(key)
        return Thing(type_name(type(key)), self._text(key))

    def _order(self, obj: Any) -> str:
        return repr(obj) if type(obj) in _ATOMS else self._text(obj)

    def _text(self, obj: Any) -> str:
        if self._options.repr_too_deep:
            return f"<{type_name(type(obj))} inside an object whose repr runs too deep>"
        try:
            return without_addresses(text_of(obj, self._shown))
        except Exception as error:
            self._options.repr_too_deep = isinstance(error, RecursionError)
            self._note(
                f"the repr of {with_article(type_name(type(obj)))} raised {type(error).__name__}: {first_line(error)}"
            )
            return f"<{type_name(type(obj))} object whose repr raised {type(error).__name__}: {first_line(error)}>"


def _held(obj: Any, kind: type) -> tuple[Any, Any] | None:
    """Return the keys (``None`` for a sequence) and the items that a list, tuple or dict holds; ``None`` for others.

    A class of the program's may draw numbers or count where it is iterated over: its methods are not called.
    """
    if issubclass(kind, list):
        return None, list.__iter__(obj)
    if issubclass(kind, tuple):
        return None, tuple.__iter__(obj)
    if issubclass(kind, collections.OrderedDict):
        return collections.OrderedDict.keys(obj), collections.OrderedDict.values(obj)
    return (dict.keys(obj), dict.values(obj)) if issubclass(kind, dict) else None


def _has_local_part(obj: Any) -> bool:
    """Is it like a DTensor? Objects whose ``__getattr__`` answers to every name are not: it is not asked."""
    try:
        return issubclass(type(object.__getattribute__(obj, "_local_tensor")), torch.Tensor)
    except Exception:
        return False


def _has_tensor_inside(members: list[Any]) -> bool:
    """Is there a tensor among an object's members, or up to four levels inside? Without one it is shown, not opened."""
    pending = collections.deque((member, 0) for member in members)
    searched: set[int] = set()
    while pending and len(searched) < SEARCHED:
        obj, depth = pending.popleft()
        kind = type(obj)
        if issubclass(kind, torch.Tensor):
            return True
        if depth < 4 and kind not in _ATOMS and not issubclass(kind, _CLOSED) and id(obj) not in searched:
            searched.add(id(obj))
            pending.extend((inner, depth + 1) for inner in _inside(obj, kind))
    return False


def _inside(obj: Any, kind: type) -> list[Any]:
    try:
        held = _held(obj, kind)
        if held is not None:
            return list(itertools.islice(held[1], 64))
        if issubclass(kind, types.MappingProxyType):
            return list(itertools.islice(obj.values(), 64))
        if issubclass(kind, (set, frozenset, *_ITERABLE)):
            return list(itertools.islice(obj, 64))
        return [member for _, member in _attributes(obj, kind)]
    except Exception:
        return []  # it cannot be looked at


def _field_names(obj: Any, kind: type) -> tuple[str, ...] | None:
    """Return the field names of a named tuple, or of one of torch's result tuples (``topk``: values, indices)."""
    names = getattr(kind, "_fields", None)
    if names is None and hasattr(kind, "n_sequence_fields"):
        names = getattr(kind, "__match_args__", None)
    return tuple(names) if isinstance(names, tuple) and len(names) == tuple.__len__(obj) else None


def _attributes(obj: Any, kind: type) -> list[tuple[str, Any]]:
    """Return instance attributes, from ``__dict__`` and ``__slots__``; properties are not run."""
    attributes = list((attributes_of(obj) or {}).items())
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            with contextlib.suppress(AttributeError):  # it was never set; not ``getattr``, which asks ``__getattr__``
                attributes.append((name, object.__getattribute__(obj, name)))
    return attributes
