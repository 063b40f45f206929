"""A setting of the process's that several blocks want changed, in any threads: changed once, put back once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any


class ProcessWide:
    """The first block to begin changes the setting, the last one to end puts back what was found.

    What the program sets itself meanwhile stays. Ending twice is no harm: an interrupt (Ctrl-C) may come at any
    moment in here, and who began ends once more then.
    """

    def __init__(self, get: Callable[[], Any], change: Callable[[Any], Any], wanted: Callable[[Any], Any]) -> None:
        """``wanted``: what it is to be, of what it is found to be."""
        self._get, self._set, self._wanted = get, change, wanted
        self._lock = threading.Lock()
        self._users: list[object] = []
        self._is_changed = False
        self._found: Any = None
        self._ours: Any = None  # as it reads after our change: floats are rounded

    def begin(self, who: object) -> None:
        """From now on this one wants it changed."""
        with self._lock:
            self._users.append(who)
            if not self._is_changed:
                self._found, self._ours, self._is_changed = self._get(), None, True
                self._set(self._wanted(self._found))
                self._ours = self._get()

    def end(self, who: object) -> None:
        """This one does not want it changed any more."""
        with self._lock:
            self._users[:] = [user for user in self._users if user is not who]
            if self._is_changed and not self._users:
                if self._ours is None or self._get() == self._ours:
                    self._set(self._found)
                self._is_changed = False

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """A block that wants it changed."""
        who = object()
        try:
            self.begin(who)
            yield
        finally:
            try:
                self.end(who)
            finally:  # once more, where an interrupt came at that very moment
                self.end(who)
