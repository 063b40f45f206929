"""Places that hold things: what one held is noted, compared by identity, and put back.

No ``==`` of the program's is asked, and no method that a class of the program's may have put in the place of its own.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from fxdebug.capture.replay.introspect import MISSING, slot_of, slots_of
from fxdebug.capture.replay.reachable import ReachableObjects, contents_of


def holders_of(found: ReachableObjects) -> list[Holder]:
    """Everywhere that what a program can get at is held."""
    return [
        *[Mapping(mapping) for mapping in found.mappings],
        *[_Sequence(sequence) for sequence in found.sequences],
        *[_Variable(_Cell(cell)) for cell in found.cells],
        *[_Variable(_Global(place, name)) for place, name in found.globals],
        *[_Variable(_ClassMember(kind, name)) for kind, name in found.members],
        *[_Members(thing) for thing in found.slotted],
        *[_Class(kind) for kind in found.classes],
    ]


class Holder:
    """Somewhere that holds things; ``swaps`` are the calls that put a stub where one of some things is."""

    def take_down(self) -> None:
        """Note what it holds."""
        raise NotImplementedError

    def is_altered(self) -> bool:
        """Does it hold something else now?"""
        raise NotImplementedError

    def is_only_wrapped(self) -> bool:
        """Has it changed in nothing but that we stand in front of a forward, of a module that is met in the body?"""
        return False

    def restore(self) -> None:
        """Let it hold what it held."""
        raise NotImplementedError

    def put_back(self) -> bool:
        """What it held; was it something else?"""
        altered = self.is_altered()
        if altered:
            self.restore()
        return altered

    def swaps(self, stubs: dict[int, Any]) -> list[Callable[[], None]]:
        """The calls that put a stub in the place of each thing held that there is one for, by its id."""
        return []


def _is_wrapper(thing: Any) -> bool:
    return type(thing) is types.MethodType and "__fxdebug__" in getattr(thing.__func__, "__dict__", ())


class Mapping(Holder):
    """A dict: a container's, an object's or a module's. Compared by identity, as no ``==`` may be asked."""

    def __init__(self, held: dict[Any, Any]) -> None:
        self.held = held
        self._kind: Any = OrderedDict if isinstance(held, OrderedDict) else dict  # not what a subclass makes of it
        self.take_down()

    def take_down(self) -> None:
        """Note what it holds."""
        self.keys, self.values = list(self._kind.keys(self.held)), list(self._kind.values(self.held))

    def is_plain(self) -> bool:
        """Can it be compared :class:`Together` with others?"""
        return type(self.held) is dict and {str}.issuperset(map(type, self.keys))

    def _contents(self) -> Iterator[tuple[Any, Any]]:
        return zip(self.keys, self.values)

    def is_altered(self) -> bool:
        """Does it hold something else now?"""
        held, kind = self.held, self._kind
        if kind.__len__(held) != len(self.keys) or not all(map(operator.is_, kind.values(held), self.values)):
            return True
        return not all(map(operator.is_, kind.keys(held), self.keys))

    def is_only_wrapped(self) -> bool:
        """Has it changed in nothing but that we stand in front of a forward?"""
        now = [(name, id(thing)) for name, thing in self._kind.items(self.held) if not _is_wrapper(thing)]
        return now == [(name, id(thing)) for name, thing in self._contents() if not _is_wrapper(thing)]

    def restore(self) -> None:
        """Let it hold what it held; what did not change stays, as other threads may be reading."""
        held, kind = self.held, self._kind
        had = set(map(id, self.keys))
        for name in [name for name in list(kind.keys(held)) if id(name) not in had]:
            kind.__delitem__(held, name)
        for name, thing in self._contents():
            if kind.get(held, name, MISSING) is not thing:
                kind.__setitem__(held, name, thing)
        if not all(map(operator.is_, kind.keys(held), self.keys)):  # in another order
            kind.clear(held)
            for name, thing in self._contents():
                kind.__setitem__(held, name, thing)

    def swaps(self, stubs: dict[int, Any]) -> list[Callable[[], None]]:
        """The calls that put a stub in the place of each thing held that there is one for, by its id."""
        put, held = self._kind.__setitem__, self.held
        return [functools.partial(put, held, name, stubs[id(x)]) for name, x in self._contents() if id(x) in stubs]


class UnchangedSet:
    """Many dicts of Python's own, with text for keys, compared at once: one by one takes three times as long."""

    def __init__(self, places: list[Mapping]) -> None:
        self._held = [place.held for place in places]
        self._sizes = [len(place.keys) for place in places]
        self._keys = list(chain.from_iterable([place.keys for place in places]))
        self._values = list(chain.from_iterable([place.values for place in places]))

    def is_altered(self) -> bool:
        """Does any of them hold something else than was noted?"""
        held = self._held
        return not (
            list(map(len, held)) == self._sizes
            and all(map(operator.is_, chain.from_iterable(map(dict.values, held)), self._values))
            and list(chain.from_iterable(held)) == self._keys
        )


class _Sequence(Holder):
    """A list, a deque or a set."""

    def __init__(self, held: Any) -> None:
        self._held = held
        self._kind: Any = next(kind for kind in (list, set, deque) if issubclass(type(held), kind))
        self.take_down()

    def take_down(self) -> None:
        self._contents = list(self._kind.__iter__(self._held))  # not what a class made from it makes of it
        self._ids = list(map(id, self._contents))

    def is_altered(self) -> bool:
        return list(map(id, self._kind.__iter__(self._held))) != self._ids

    def restore(self) -> None:
        held, kind = self._held, self._kind
        kind.clear(held)
        (kind.update if kind is set else kind.extend)(held, self._contents)

    def swaps(self, stubs: dict[int, Any]) -> list[Callable[[], None]]:
        if self._kind is not list:
            return []
        put = functools.partial(list.__setitem__, self._held)
        return [functools.partial(put, i, stubs[id(t)]) for i, t in enumerate(self._contents) if id(t) in stubs]


class _Cell:
    """A variable that functions close over."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def get(self) -> Any:
        return next(iter(contents_of(self._cell)), MISSING)

    def set(self, thing: Any) -> None:
        self._cell.cell_contents = thing

    def delete(self) -> None:
        with contextlib.suppress(ValueError):
            del self._cell.cell_contents


class _Global:
    """A global variable of the program."""

    def __init__(self, place: dict[str, Any], name: str) -> None:
        self._place = place
        self._name = name

    def get(self) -> Any:
        return self._place.get(self._name, MISSING)

    def set(self, thing: Any) -> None:
        self._place[self._name] = thing

    def delete(self) -> None:
        self._place.pop(self._name, None)


class _Member:
    """An attribute of an object or a class."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self._name = name

    def get(self) -> Any:
        return slot_of(self._owner, self._name)

    def set(self, thing: Any) -> None:
        object.__setattr__(self._owner, self._name, thing)

    def delete(self) -> None:
        object.__delattr__(self._owner, self._name)


class _ClassMember:
    """An attribute of a class of a library's."""

    def __init__(self, kind: type, name: str) -> None:
        self._class = kind
        self._name = name

    def get(self) -> Any:
        return self._class.__dict__.get(self._name, MISSING)

    def set(self, thing: Any) -> None:
        type.__setattr__(self._class, self._name, thing)

    def delete(self) -> None:
        type.__delattr__(self._class, self._name)


class _Variable(Holder):
    def __init__(self, variable: Any) -> None:
        self._variable = variable
        self.take_down()

    def take_down(self) -> None:
        self._held = self._variable.get()

    def is_altered(self) -> bool:
        return self._variable.get() is not self._held

    def restore(self) -> None:
        if self._held is MISSING:
            self._variable.delete()
        else:
            self._variable.set(self._held)

    def swaps(self, stubs: dict[int, Any]) -> list[Callable[[], None]]:
        stub = stubs.get(id(self._held))
        return [] if stub is None else [functools.partial(self._variable.set, stub)]


class _Members(Holder):
    """What an object keeps in slots."""

    def __init__(self, thing: Any) -> None:
        kind: Any = type(thing)
        self._variables = [_Variable(_Member(thing, name)) for name in slots_of(kind)]

    def take_down(self) -> None:
        for variable in self._variables:
            variable.take_down()

    def is_altered(self) -> bool:
        return any(variable.is_altered() for variable in self._variables)

    def restore(self) -> None:
        for variable in self._variables:
            variable.put_back()

    def swaps(self, stubs: dict[int, Any]) -> list[Callable[[], None]]:
        return [swap for variable in self._variables for swap in variable.swaps(stubs)]


class _Class(Holder):
    """The attributes of a class."""

    def __init__(self, kind: type) -> None:
        self._class = kind
        self.take_down()

    def take_down(self) -> None:
        self._contents = dict(self._class.__dict__)

    def is_altered(self) -> bool:
        now, contents = self._class.__dict__, self._contents
        return len(now) != len(contents) or any(now.get(name, MISSING) is not thing for name, thing in contents.items())

    def restore(self) -> None:
        now, contents = self._class.__dict__, self._contents
        for name in [name for name in now if name not in contents]:
            type.__delattr__(self._class, name)
        for name, thing in contents.items():
            if now.get(name, MISSING) is not thing:
                type.__setattr__(self._class, name, thing)

    def swaps(self, stubs: dict[int, Any]) -> list[Callable[[], None]]:
        return [
            functools.partial(type.__setattr__, self._class, name, stubs[id(thing)])
            for name, thing in self._contents.items()
            if id(thing) in stubs
        ]
