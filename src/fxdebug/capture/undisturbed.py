"""A moment in which Python does not change threads of its own accord.

What another thread writes while a body is run again cannot be told from what the body writes, and would be
taken back. It is a matter of a millisecond: the interpreter is asked to let this thread finish.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

MOMENT = 0.05  # seconds: a body that takes longer is left for other threads after so many

_lock = threading.Lock()
_users = 0
_found = _set = 0.0


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """A block during which other threads wait, for so long as it does nothing that waits itself.

    The interval is the process's: blocks that overlap set it once, and the last one to end puts it back.
    """
    global _users, _found, _set
    with _lock:
        _users += 1
        if _users == 1:
            _found = sys.getswitchinterval()
            sys.setswitchinterval(max(MOMENT, _found))
            _set = sys.getswitchinterval()
    time.sleep(0)  # who is waiting already has the interval of before in mind: let through, it asks with the new one
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users and sys.getswitchinterval() == _set:  # the program may have set its own
                sys.setswitchinterval(_found)
