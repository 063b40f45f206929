"""What running a body's Python a second time may touch: taken down before, put back after.

A place that holds things (a module's attributes, a container, a variable) is compared by the identity
of what it holds. What cannot be put back (an iterator, an open file) is kept out of reach meanwhile:
a body that uses it ends its trace.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import random
import sys
import threading
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from fxdebug.capture.own_state import rewind, stub
from fxdebug.capture.reach import MISSING, Reach, contents_of, mappings_of, slot_of, slots_of
from fxdebug.capture.references import Passed, References, references_to
from fxdebug.capture.settings import rewinds
from fxdebug.capture.undisturbed import undisturbed

__all__ = ["TOO_MUCH", "Passed", "References", "State", "references_to"]

TOO_MUCH = "the program holds more objects than could be put back if it were run again"

UNMOVED = "the program holds a {} in a tuple, a set or the like, where it cannot be kept from being used twice"


class State:
    """Everything the modules of a model, and what they are ``given``, can reach, and all random generators.

    From here to :meth:`put_back` the garbage of the program is to lie where it is (``uncollected``): what a
    finalizer writes would be taken back.
    """

    def __init__(self, model: nn.Module, given: Iterable[Any] = ()) -> None:
        found = Reach(model, given=given)
        self.why_not = "" if found.is_complete else TOO_MUCH  # in words: what cannot be put back, or kept out of reach
        self._places: list[_Place] = [
            *[_Mapping(mapping) for mapping in found.mappings],
            *[_Sequence(sequence) for sequence in found.sequences],
            *[_Variable(_Cell(cell)) for cell in found.cells],
            *[_Variable(_Global(place, name)) for place, name in found.globals],
            *[_Variable(_ClassMember(kind, name)) for kind, name in found.members],
            *[_Members(thing) for thing in found.slotted],
            *[_Class(kind) for kind in found.classes],
        ]
        self._empty = found.empty
        self._rewinds = [back for thing in found.others if (back := rewind(thing)) is not None]
        stubs = {id(thing): instead for thing in found.others if (instead := stub(thing)) is not None}
        for thing in found.others:
            if (
                id(thing) in stubs
                and id(thing) in found.fixed
                and not issubclass(type(thing), functools._lru_cache_wrapper)
            ):
                self.why_not = self.why_not or UNMOVED.format(type(thing).__name__)
        self._swaps = [swap for place in self._places for swap in place.swaps(stubs)] if stubs else []
        self._swapped = [place for place in self._places if place.swaps(stubs)] if stubs else []
        self._of_modules = {id(place.held): place for place in self._places if isinstance(place, _Mapping)}
        own = {id(mapping) for module in model.modules() for mapping in mappings_of(module)}
        self._shared = [place for place in self._places if not (isinstance(place, _Mapping) and id(place.held) in own)]
        self.changed = False  # was anything else there after the last block? (stubs do not count)
        self.drew = False  # did the last block touch Python's or numpy's random state?
        self._alone = threading.active_count() == 1
        self._torch = torch.get_rng_state()
        self._python = random.getstate()
        self._numpy = _numpy_state()
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state_all() if cuda else None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """A block after which everything that is reached through the modules is as it was before."""
        before = random.getstate(), _numpy_state()  # first of all: numpy lets other threads in
        with contextlib.nullcontext() if self._alone else undisturbed():
            if not self._alone:  # what other threads of the program wrote since the last block stays
                for place in self._places:
                    if place not in self._swapped:
                        place.take_down()
            for swap in self._swaps:
                swap()
            settings = rewinds()
            try:
                yield
            finally:
                self.put_back_attributes()
                for back in settings:
                    self.changed = back() or self.changed
        self.drew = random.getstate() != before[0] or _comparable(_numpy_state()) != _comparable(before[1])

    def is_altered_for(self, module: nn.Module) -> bool:
        """Inside a block: would a call of this module now find other things than before it?

        What it holds itself, and what is no module's own.
        """
        places = [self._of_modules.get(id(held)) for each in module.modules() for held in mappings_of(each)]
        looked_at = [place for place in (*places, *self._shared) if place is not None and place not in self._swapped]
        return any(place.is_altered() and not place.is_only_wrapped() for place in looked_at)

    def put_back_attributes(self) -> None:
        """What the places hold, wherever it is something else now."""
        self.changed = False
        for container in self._empty:
            if container:
                container.clear()
                self.changed = True
        for place in self._places:
            if place.put_back() and place not in self._swapped:
                self.changed = True
        for back in self._rewinds:
            if back():
                self.changed = True

    def put_back(self) -> None:
        """Everything as it was."""
        if self._alone:
            self.put_back_attributes()
        if not torch.equal(torch.get_rng_state(), self._torch):
            torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)


def _numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def _comparable(state: Any) -> Any:
    return state if state is None else (state[1].tobytes(), *state[2:])


# Places ------------------------------------------------------------------------------------------


class _Place:
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
        return []


def _is_wrapper(thing: Any) -> bool:
    return type(thing) is types.MethodType and "__fxdebug__" in getattr(thing.__func__, "__dict__", ())


class _Mapping(_Place):
    """A dict: a container's, an object's or a module's. Compared by identity, as no ``==`` may be asked."""

    def __init__(self, held: dict[Any, Any]) -> None:
        self.held = held
        self._kind: Any = OrderedDict if isinstance(held, OrderedDict) else dict  # not what a subclass makes of it
        self.take_down()

    def take_down(self) -> None:
        contents = list(self._kind.items(self.held))
        self._keys, self._values = [key for key, _ in contents], [thing for _, thing in contents]

    def _contents(self) -> Iterator[tuple[Any, Any]]:
        return zip(self._keys, self._values)

    def is_altered(self) -> bool:
        held, kind = self.held, self._kind
        if kind.__len__(held) != len(self._keys) or not all(map(operator.is_, kind.values(held), self._values)):
            return True
        return not all(map(operator.is_, kind.keys(held), self._keys))

    def is_only_wrapped(self) -> bool:
        now = [(name, id(thing)) for name, thing in self._kind.items(self.held) if not _is_wrapper(thing)]
        return now == [(name, id(thing)) for name, thing in self._contents() if not _is_wrapper(thing)]

    def restore(self) -> None:
        held, kind = self.held, self._kind  # other threads may be reading: what did not change stays
        had = set(map(id, self._keys))
        for name in [name for name in list(kind.keys(held)) if id(name) not in had]:
            kind.__delitem__(held, name)
        for name, thing in self._contents():
            if kind.get(held, name, MISSING) is not thing:
                kind.__setitem__(held, name, thing)
        if not all(map(operator.is_, kind.keys(held), self._keys)):  # in another order
            kind.clear(held)
            for name, thing in self._contents():
                kind.__setitem__(held, name, thing)

    def swaps(self, stubs: dict[int, Any]) -> list[Callable[[], None]]:
        put, held = self._kind.__setitem__, self.held
        return [functools.partial(put, held, name, stubs[id(x)]) for name, x in self._contents() if id(x) in stubs]


class _Sequence(_Place):
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


class _Variable(_Place):
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


class _Members(_Place):
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


class _Class(_Place):
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
