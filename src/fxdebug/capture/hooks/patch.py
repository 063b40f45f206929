"""The one primitive that replaces an attribute or a setting temporarily, and restores the original.

A :class:`Patch` is one place: an attribute or a setting of Python, torch or the model. Its name is that of its row
in ``docs/how-it-works.md`` ("Everything that is ever patched"); a test compares the two. A :class:`SharedPatch` is one
or more places that several blocks want patched at the same time; the blocks may be in any threads and end in any order.
The few other files that assign to objects which are not their own are listed in the test, each with its reason.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

Lock = contextlib.AbstractContextManager[Any]

INHERITED: Any = object()  # the owner has no such attribute of its own: restoring removes ours
ABSENT: Any = object()  # there is no such attribute at all, in this version of Python or torch
_UNKNOWN: Any = object()  # ours is about to be written, or was just written


class Patch(ABC):
    """One place that can be patched: its original content, and ours.

    It is safe against an interrupt (Ctrl-C) at any moment: :meth:`restore` undoes a half-made change, too, and may be
    called again. Content that the program puts there in the meantime stays.
    """

    is_put = False
    _original: Any = None
    _ours: Any = None  # as read back after the change: some settings are rounded

    def __init__(self, name: str) -> None:
        self.name = name  # its row in docs/how-it-works.md

    @abstractmethod
    def read(self) -> Any:
        """Return the present content, or ``INHERITED``, or ``ABSENT``."""

    @abstractmethod
    def write(self, content: Any) -> None:
        """Set the content; ``INHERITED`` removes it."""

    @abstractmethod
    def replacement(self, original: Any) -> Any:
        """Return our content in place of ``original``."""

    def put(self) -> None:
        """Set our content, unless it is there. A place that does not exist in this version is left alone."""
        if self._is_done():
            return
        original = self.read()
        if original is ABSENT:
            return
        ours = self.replacement(original)
        self._original, self._ours = original, _UNKNOWN
        self.is_put = True
        self.write(ours)
        self._ours = self.read()

    def _is_done(self) -> bool:
        """Is our content there already? A change that an interrupt left half made is undone first."""
        if self.is_put and self._ours is _UNKNOWN:
            self.restore()
        return self.is_put

    def restore(self) -> None:
        """Restore the original, unless the program has replaced the patch."""
        if self.is_put:
            now = self.read()
            if self.is_ours(now) if self._ours is not _UNKNOWN else now is not self._original:
                self.write(self._original)
            self.is_put = False
            self._original = self._ours = None  # keep nothing of the program's alive

    def is_ours(self, content: Any) -> bool:
        """Is this our content?"""
        return content is self._ours


class Attribute(Patch):
    """An attribute of a class or of a Python module; ``make`` returns our content for the original.

    >>> import math
    >>> patch = Attribute("math.tau", math, "tau", lambda original: 2 * original)
    >>> patch.put()
    >>> doubled = math.tau
    >>> patch.restore()
    >>> doubled / math.tau
    2.0
    """

    def __init__(self, name: str, owner: Any, attribute: str, make: Callable[[Any], Any]) -> None:
        super().__init__(name)
        self._owner, self._attribute, self._make = owner, attribute, make

    def read(self) -> Any:
        """Return the present content."""
        own = vars(self._owner)
        if self._attribute in own:
            return own[self._attribute]  # not getattr: for a method in C it gives a new object each time
        return INHERITED if hasattr(self._owner, self._attribute) else ABSENT

    def write(self, content: Any) -> None:
        """Set the content."""
        if content is not INHERITED:
            setattr(self._owner, self._attribute, content)
        elif self._attribute in vars(self._owner):
            delattr(self._owner, self._attribute)

    def replacement(self, original: Any) -> Any:
        """Return our content."""
        return self._make(getattr(self._owner, self._attribute))


class OwnAttribute(Patch):
    """An entry of an object's own ``__dict__``, written without the ``__setattr__`` of its class.

    >>> own = {"rate": 1}
    >>> patch = OwnAttribute("<thing>.rate", own, "rate", 2)
    >>> patch.put()
    >>> inside = dict(own)
    >>> patch.restore()
    >>> inside, own
    ({'rate': 2}, {'rate': 1})
    """

    def __init__(self, name: str, own: dict[str, Any], attribute: str, content: Any) -> None:
        super().__init__(name)
        self._own, self._attribute, self._content = own, attribute, content

    def put(self) -> None:  # written out, for speed: it runs for every module of a model
        """Set our content, unless it is there."""
        if self.is_put and self._is_done():
            return
        own, attribute = self._own, self._attribute
        self._original, self._ours = own.get(attribute, INHERITED), _UNKNOWN
        self.is_put = True
        own[attribute] = self._content
        self._ours = self._content

    def read(self) -> Any:
        """Return the present content."""
        return self._own.get(self._attribute, INHERITED)

    def write(self, content: Any) -> None:
        """Set the content."""
        if content is INHERITED:
            self._own.pop(self._attribute, None)
        else:
            self._own[self._attribute] = content

    def replacement(self, original: Any) -> Any:
        """Return our content."""
        return self._content


class Setting(Patch):
    """A setting that is read and written through functions; ``make`` returns our setting for the original.

    >>> import sys
    >>> patch = Setting("sys.setswitchinterval", sys.getswitchinterval, sys.setswitchinterval, lambda old: 2 * old)
    >>> before = sys.getswitchinterval()
    >>> patch.put()
    >>> longer = sys.getswitchinterval()
    >>> patch.restore()
    >>> round(longer / before), sys.getswitchinterval() == before
    (2, True)
    """

    def __init__(
        self, name: str, get: Callable[[], Any], set: Callable[[Any], Any], make: Callable[[Any], Any]
    ) -> None:
        super().__init__(name)
        self._get, self._set, self._make = get, set, make

    def read(self) -> Any:
        """Return the present content."""
        return self._get()

    def write(self, content: Any) -> None:
        """Set the content."""
        self._set(content)

    def replacement(self, original: Any) -> Any:
        """Return our content."""
        return self._make(original)

    def is_ours(self, content: Any) -> bool:
        """Does it read as our setting does?"""
        return bool(content == self._ours)


class SharedPatch:
    """Places that several users want patched at once: the first to begin patches, the last to end restores.

    A user that calls :meth:`begin` must call :meth:`end` in any case, even if ``begin`` itself was interrupted; ending
    twice does no harm. ``users`` are the users that have begun and not yet ended, in the order of their beginning.

    >>> import math
    >>> shared = SharedPatch(Attribute("math.tau", math, "tau", lambda original: 0.0))
    >>> shared.begin("a"), shared.begin("b"), shared.end("a"), math.tau, shared.users
    (None, None, None, 0.0, ('b',))
    >>> shared.end("b"), math.tau > 6
    (None, True)
    """

    users: tuple[Any, ...] = ()
    _put: tuple[Patch, ...] = ()  # patched, or about to be
    _is_whole = False  # are all of them put?

    def __init__(self, *patches: Patch, lock: Lock | None = None) -> None:
        """Share these places; ``lock`` is a reentrant lock, given if the users hold it as well."""
        self._patches = patches
        self._lock = threading.RLock() if lock is None else lock

    def places(self) -> tuple[Patch, ...]:
        """Return the places to patch now; called when the first user begins."""
        return self._patches

    def begin(self, user: Any) -> None:
        """Patch for this user, if no other has yet."""
        with self._lock:
            self.users = (*self.users, user)
            if not self._is_whole:
                if not self._put:
                    self._put = self.places()
                for patch in self._put:
                    patch.put()
                self._is_whole = True

    def add(self, patch: Patch) -> None:
        """Patch one more place while there are users."""
        with self._lock:
            if self.users:
                self._put = (*self._put, patch)
                patch.put()

    def end(self, user: Any) -> None:
        """Restore, if this is the last user. An error at one place is raised after all others are restored."""
        with self._lock:
            users = self.users
            is_only = len(users) == 1 and users[0] is user
            self.users = () if is_only else tuple([other for other in users if other is not user])
            if self.users or not self._put:
                return
            self._is_whole = False
            failed = None
            for patch in reversed(self._put):
                try:
                    patch.restore()
                except Exception as error:
                    failed = failed or error
            if failed is not None:  # the next call of end tries again
                raise failed
            self._put = ()

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Patch for the length of a block."""
        user = object()
        try:
            self.begin(user)
            yield
        finally:
            try:
                self.end(user)
            finally:  # once more, in case an interrupt cut the first one short
                self.end(user)
