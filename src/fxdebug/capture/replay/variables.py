"""Variables: a name that is bound to an object. Each kind is read, set and unset in its own way.

No method runs that a class of the program overrides.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from fxdebug.capture.hooks.patch import INHERITED, Patch
from fxdebug.capture.replay.functions import contents_of
from fxdebug.capture.replay.introspect import MISSING, slot_of

PLAIN = frozenset((bool, int, float, str, type(None)))


class Variable(Protocol):
    """A name bound to one object, or unset; its content is then ``MISSING``."""

    def get(self) -> Any:
        """Return the content, or ``MISSING``."""

    def set(self, thing: Any) -> None:
        """Bind the name to this object."""

    def delete(self) -> None:
        """Unset the name."""


class ClosureCell:
    """A variable that functions close over."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def get(self) -> Any:
        """Return the content, or ``MISSING``."""
        return next(iter(contents_of(self._cell)), MISSING)

    def set(self, thing: Any) -> None:
        """Set the content."""
        self._cell.cell_contents = thing

    def delete(self) -> None:
        """Empty the cell."""
        with contextlib.suppress(ValueError):
            del self._cell.cell_contents


class Item:
    """An item of a dict: an attribute of an object, a global variable of the program or of a library."""

    def __init__(self, items: dict[str, Any], name: str) -> None:
        self.items = items
        self.name = name

    def get(self) -> Any:
        """Return the item, or ``MISSING``."""
        return dict.get(self.items, self.name, MISSING)

    def set(self, thing: Any) -> None:
        """Set the item."""
        dict.__setitem__(self.items, self.name, thing)

    def delete(self) -> None:
        """Remove the item."""
        dict.pop(self.items, self.name, None)


class Slot:
    """An attribute that an object keeps in a slot."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self.name = name

    def get(self) -> Any:
        """Return the content, or ``MISSING``."""
        return slot_of(self._owner, self.name)

    def set(self, thing: Any) -> None:
        """Set the attribute."""
        object.__setattr__(self._owner, self.name, thing)

    def delete(self) -> None:
        """Remove the attribute."""
        object.__delattr__(self._owner, self.name)


class ClassAttribute:
    """One attribute of a class."""

    def __init__(self, kind: type, name: str) -> None:
        self.owner = kind
        self.name = name

    def get(self) -> Any:
        """Return the attribute that the class itself has, or ``MISSING``."""
        return self.owner.__dict__.get(self.name, MISSING)

    def set(self, thing: Any) -> None:
        """Set the attribute."""
        type.__setattr__(self.owner, self.name, thing)

    def delete(self) -> None:
        """Remove the attribute."""
        type.__delattr__(self.owner, self.name)


class Change(NamedTuple):
    """A variable with another content than before; without a variable, a change of another kind."""

    variable: Variable | None
    content: Any

    @property
    def is_plain(self) -> bool:
        """Is it a number, a text or a flag under a name?"""
        return self.variable is not None and type(self.content) in PLAIN


class VariablePatch(Patch):
    """A variable that has another content for a while."""

    def __init__(self, variable: Variable, content: Any) -> None:
        super().__init__("<owner>.<attribute>")
        self._variable, self._content = variable, content

    def read(self) -> Any:
        """Return the present content."""
        content = self._variable.get()
        return INHERITED if content is MISSING else content

    def write(self, content: Any) -> None:
        """Set the content."""
        if content is not INHERITED:
            self._variable.set(content)
        elif self._variable.get() is not MISSING:
            self._variable.delete()

    def replacement(self, original: Any) -> Any:
        """Return our content."""
        return self._content


@contextlib.contextmanager
def in_force(changes: Iterable[Change]) -> Iterator[None]:
    """Make these changes for the length of a block."""
    patches = [VariablePatch(change.variable, change.content) for change in changes if change.variable is not None]
    try:
        for patch in patches:
            patch.put()
        yield
    finally:
        for patch in reversed(patches):
            patch.restore()
