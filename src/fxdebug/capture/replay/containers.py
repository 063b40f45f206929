"""Holders of objects: take a snapshot of a place's contents, compare them with it by identity, and restore them.

No ``==`` of the program runs, and no method that a class of the program overrides.
"""

from __future__ import annotations

import functools
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import chain
from typing import Any

from fxdebug.capture.replay.introspect import MISSING, attributes_of, slots_of
from fxdebug.capture.replay.reachable import ReachableObjects
from fxdebug.capture.replay.variables import Change, ClassAttribute, ClosureCell, Item, Slot, Variable


def holders_of(reachable: ReachableObjects) -> list[Holder]:
    """Return a holder, with its snapshot taken, for each place that the walk from a model found."""
    return [
        *[DictHolder(each) for each in reachable.dicts],
        *[_SequenceHolder(each) for each in reachable.sequences],
        *[_VariableHolder(ClosureCell(cell)) for cell in reachable.cells],
        *[_VariableHolder(Item(namespace, name)) for namespace, name in reachable.globals],
        *[_VariableHolder(ClassAttribute(kind, name)) for kind, name in reachable.class_attributes],
        *[_SlotsHolder(thing) for thing in reachable.slotted],
        *[_ClassHolder(kind) for kind in reachable.classes],
    ]


def holders_of_one(thing: Any) -> list[Holder]:
    """Return holders for one object alone: its items, its attributes, its slots."""
    kind: Any = type(thing)
    found: list[Holder] = []
    if issubclass(kind, dict):
        found.append(DictHolder(thing))
    elif issubclass(kind, (list, set, deque)):
        found.append(_SequenceHolder(thing))
    attributes = None if kind in (dict, list, set, deque, OrderedDict) else attributes_of(thing)
    if attributes is not None:
        found.append(DictHolder(attributes))
    return [*found, _SlotsHolder(thing)] if slots_of(kind) else found


def switches_of(reachable: ReachableObjects) -> list[Holder]:
    """Return a holder for each attribute of a library's class that class methods may set, as for a switch."""
    return [_VariableHolder(ClassAttribute(kind, name)) for kind, name in reachable.switches]


class Holder:
    """A place that holds objects: a container, a variable, the attributes of an object or a class.

    ``place`` is the container, the class, or the variable.
    """

    place: Any

    def snapshot(self) -> None:
        """Record the present contents."""
        raise NotImplementedError

    def is_changed(self) -> bool:
        """Do the contents differ from the snapshot?"""
        raise NotImplementedError

    def is_changed_by_wrappers_only(self) -> bool:
        """Is the only change a forward wrapper of ours, for a module that is first called in the body?"""
        return False

    def restore(self) -> bool:
        """Restore the contents of the snapshot, and return whether they had changed."""
        changed = self.is_changed()
        if changed:
            self._write()
        return changed

    def _write(self) -> None:
        """Write the contents of the snapshot back."""
        raise NotImplementedError

    def replacements(self, blockers: dict[int, Any]) -> list[Callable[[], None]]:
        """Return calls that replace each object ``x`` held here by its blocker, ``blockers[id(x)]``."""
        return []

    def changes(self) -> list[Change]:
        """Return the changes since the snapshot, but for forward wrappers of ours."""
        return [Change(None, MISSING)] if self.is_changed() else []


# Dicts -------------------------------------------------------------------------------------------


class DictHolder(Holder):
    """A dict: a container, or the attributes of an object or a module."""

    def __init__(self, contents: dict[Any, Any]) -> None:
        self.dict = self.place = contents
        kind = type(contents)
        self._kind: Any = OrderedDict if issubclass(kind, OrderedDict) else dict  # so no subclass's method runs
        self.snapshot()

    def snapshot(self) -> None:
        """Record keys and values, in their order."""
        self.keys, self.values = list(self._kind.keys(self.dict)), list(self._kind.values(self.dict))

    def is_plain(self) -> bool:
        """Can it be part of an :class:`UnchangedSet`?"""
        return type(self.dict) is dict and {str}.issuperset(map(type, self.keys))

    def _items(self) -> Iterator[tuple[Any, Any]]:
        return zip(self.keys, self.values)

    def is_changed(self) -> bool:
        """Are there other keys or values, or another order?"""
        now, kind = self.dict, self._kind
        if kind.__len__(now) != len(self.keys) or not all(map(operator.is_, kind.values(now), self.values)):
            return True
        return not all(map(operator.is_, kind.keys(now), self.keys))

    def is_changed_apart_from(self, keys: Set[Any]) -> bool:
        """Does it differ from the snapshot in more than its items under these keys?"""
        now = [(key, id(thing)) for key, thing in self._kind.items(self.dict) if key not in keys]
        return now != [(key, id(thing)) for key, thing in self._items() if key not in keys]

    def is_changed_by_wrappers_only(self) -> bool:
        """Is it the same as before, but for forward wrappers of ours?"""
        now = [(name, id(thing)) for name, thing in self._kind.items(self.dict) if not _is_wrapper(thing)]
        return now == [(name, id(thing)) for name, thing in self._items() if not _is_wrapper(thing)]

    def _write(self) -> None:
        """Write back only what changed, as other threads may be reading."""
        now, kind = self.dict, self._kind
        ids = set(map(id, self.keys))
        for name in [name for name in list(kind.keys(now)) if id(name) not in ids]:
            kind.__delitem__(now, name)
        for name, thing in self._items():
            if kind.get(now, name, MISSING) is not thing:
                kind.__setitem__(now, name, thing)
        if not all(map(operator.is_, kind.keys(now), self.keys)):  # the order differs
            kind.clear(now)
            for name, thing in self._items():
                kind.__setitem__(now, name, thing)

    def changes(self) -> list[Change]:
        """Return the items that are new, another or gone."""
        if not self.is_changed() or self.is_changed_by_wrappers_only():
            return []
        if not self.is_plain():
            return [Change(None, MISSING)]
        found = [
            Change(Item(self.dict, name), now)
            for name, before, now in _differing(dict(self._items()), self.dict)
            if not _is_wrapper(before) and not _is_wrapper(now)
        ]
        return found or [Change(None, MISSING)]  # only their order differs

    def put_back(self, key: Any) -> None:
        """Write one item of the snapshot back."""
        if key in self.keys:
            self._kind.__setitem__(self.dict, key, self.values[self.keys.index(key)])
        else:
            self._kind.pop(self.dict, key, None)

    def replacements(self, blockers: dict[int, Any]) -> list[Callable[[], None]]:
        """Return calls that replace values by their blockers."""
        put, now = self._kind.__setitem__, self.dict
        return [functools.partial(put, now, name, blockers[id(x)]) for name, x in self._items() if id(x) in blockers]


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each name under which there is another thing than before, with both; ``MISSING`` for none."""
    for name in [*now, *[name for name in before if name not in now]]:
        pair = before.get(name, MISSING), now.get(name, MISSING)
        if pair[0] is not pair[1]:
            yield name, *pair


def _is_wrapper(thing: Any) -> bool:
    """Is it the wrapper that a recording puts in front of a module's ``forward``?"""
    return type(thing) is types.MethodType and "__fxdebug__" in getattr(thing.__func__, "__dict__", ())


class UnchangedSet:
    """Many plain dicts, compared with their snapshots at once: comparing one by one takes three times as long."""

    def __init__(self, holders: list[DictHolder]) -> None:
        self._dicts = [holder.dict for holder in holders]
        self._sizes = [len(holder.keys) for holder in holders]
        self._keys = list(chain.from_iterable([holder.keys for holder in holders]))
        self._values = list(chain.from_iterable([holder.values for holder in holders]))

    def is_changed(self) -> bool:
        """Do the contents of any of them differ from its snapshot?"""
        dicts = self._dicts
        return not (
            list(map(len, dicts)) == self._sizes
            and all(map(operator.is_, chain.from_iterable(map(dict.values, dicts)), self._values))
            and list(chain.from_iterable(dicts)) == self._keys
        )


# Lists, deques and sets --------------------------------------------------------------------------


class _SequenceHolder(Holder):
    """A list, a deque or a set."""

    def __init__(self, sequence: Any) -> None:
        self._sequence = self.place = sequence
        self._kind: Any = next(kind for kind in (list, set, deque) if issubclass(type(sequence), kind))
        self.snapshot()

    def snapshot(self) -> None:
        self._items = list(self._kind.__iter__(self._sequence))  # so no subclass's method runs
        self._ids = list(map(id, self._items))

    def is_changed(self) -> bool:
        return list(map(id, self._kind.__iter__(self._sequence))) != self._ids

    def _write(self) -> None:
        now, kind = self._sequence, self._kind
        kind.clear(now)
        (kind.update if kind is set else kind.extend)(now, self._items)

    def replacements(self, blockers: dict[int, Any]) -> list[Callable[[], None]]:
        if self._kind is not list:
            return []
        put = functools.partial(list.__setitem__, self._sequence)
        return [functools.partial(put, i, blockers[id(x)]) for i, x in enumerate(self._items) if id(x) in blockers]


# Variables ---------------------------------------------------------------------------------------


class _VariableHolder(Holder):
    """One variable."""

    def __init__(self, variable: Variable) -> None:
        self._variable = self.place = variable
        self.snapshot()

    def snapshot(self) -> None:
        self._content = self._variable.get()

    def is_changed(self) -> bool:
        return self._variable.get() is not self._content

    def _write(self) -> None:
        if self._content is MISSING:
            self._variable.delete()
        else:
            self._variable.set(self._content)

    def replacements(self, blockers: dict[int, Any]) -> list[Callable[[], None]]:
        blocker = blockers.get(id(self._content))
        return [] if blocker is None else [functools.partial(self._variable.set, blocker)]

    def changes(self) -> list[Change]:
        now = self._variable.get()
        return [] if now is self._content else [Change(self._variable, now)]


class _SlotsHolder(Holder):
    """All slots of one object."""

    def __init__(self, thing: Any) -> None:
        kind: Any = type(thing)
        self.place = thing
        self._slots = [_VariableHolder(Slot(thing, name)) for name in slots_of(kind)]

    def snapshot(self) -> None:
        for slot in self._slots:
            slot.snapshot()

    def is_changed(self) -> bool:
        return any(slot.is_changed() for slot in self._slots)

    def _write(self) -> None:
        for slot in self._slots:
            slot.restore()

    def replacements(self, blockers: dict[int, Any]) -> list[Callable[[], None]]:
        return [replace for slot in self._slots for replace in slot.replacements(blockers)]

    def changes(self) -> list[Change]:
        return [change for slot in self._slots for change in slot.changes()]


# Classes -----------------------------------------------------------------------------------------


class _ClassHolder(Holder):
    """All attributes of a class of the program."""

    def __init__(self, kind: type) -> None:
        self._class = self.place = kind
        self.snapshot()

    def snapshot(self) -> None:
        self._attributes = dict(self._class.__dict__)

    def is_changed(self) -> bool:
        now, before = self._class.__dict__, self._attributes
        return len(now) != len(before) or any(now.get(name, MISSING) is not thing for name, thing in before.items())

    def _write(self) -> None:
        now, before = self._class.__dict__, self._attributes
        for name in [name for name in now if name not in before]:
            type.__delattr__(self._class, name)
        for name, thing in before.items():
            if now.get(name, MISSING) is not thing:
                type.__setattr__(self._class, name, thing)

    def replacements(self, blockers: dict[int, Any]) -> list[Callable[[], None]]:
        return [
            functools.partial(type.__setattr__, self._class, name, blockers[id(thing)])
            for name, thing in self._attributes.items()
            if id(thing) in blockers
        ]

    def changes(self) -> list[Change]:
        differing = _differing(self._attributes, self._class.__dict__)
        return [Change(ClassAttribute(self._class, name), now) for name, _, now in differing]
