"""Moments in which nobody else's code runs: not other threads' of their own accord, not what frees garbage.

What another thread or a finalizer writes while a body is run again cannot be told from what the body writes: it
would be taken back, and a finalizer that removes a file would be refused to.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator

MOMENT = 0.05  # seconds: a body that takes longer is left for other threads after so many

_lock = threading.Lock()
_users = 0
_waiting: list[object] = []
_found = _set = 0.0
_collects = False


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A block during which Python does not look for garbage.

    What it frees may run the program's code (``__del__``, finalizers), or wait and so let other threads in. The
    collector is the process's: blocks that overlap switch it off once, and the last one to end puts it back.
    """
    global _collects
    who = object()
    try:
        with _lock:
            _waiting.append(who)
            if len(_waiting) == 1:
                _collects = gc.isenabled()
                gc.disable()
        yield
    finally:
        try:
            _over(who)
        finally:  # once more, where an interrupt (Ctrl-C) came at that very moment
            _over(who)


def _over(who: object) -> None:
    global _collects
    with _lock:
        _waiting[:] = [other for other in _waiting if other is not who]
        if not _waiting and _collects:
            gc.enable()
            _collects = False


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """A block during which other threads wait, for so long as it does nothing that waits itself.

    The interval is the process's: blocks that overlap set it once, and the last one to end puts it back.
    """
    global _users, _found, _set
    with uncollected():
        with _lock:
            _users += 1
            if _users == 1:
                _found = sys.getswitchinterval()
                sys.setswitchinterval(max(MOMENT, _found))
                _set = sys.getswitchinterval()
        try:
            time.sleep(0)  # who waits already has the interval of before in mind: let through, it asks with the new one
            yield
        finally:
            with _lock:
                _users -= 1
                if not _users and sys.getswitchinterval() == _set:  # the program may have set its own
                    sys.setswitchinterval(_found)
