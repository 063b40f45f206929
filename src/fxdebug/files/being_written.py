"""Tell whether a file is still being written: by a lock that ends with its writer, or by what its writer left in it.

A process that is killed leaves its files as they are. The lock on a file that it has open is gone with it, whatever
ended it. Where there are no such locks (Windows, some network drives), the process that the writer named is looked for.
"""

from __future__ import annotations

import os
import socket
import time
import weakref
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


TRIES = 5  # of taking the lock


class Writer(NamedTuple):
    """A process that writes: its host, its process id, and when it began by its system's clock (0: unknown)."""

    host: str
    process: int
    began: int


def this_writer() -> Writer:
    """Return what this process says of itself."""
    return Writer(socket.gethostname(), os.getpid(), _beginning_of(os.getpid()))


def mark_as_written(file: FileIO) -> None:
    """Lock a file that this process has open for writing, until it closes it, or ends."""
    if fcntl is None:
        return
    for _ in range(TRIES):
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a reader asks just now
            time.sleep(0.001)
        except OSError:
            return
        else:
            _keep_from_children(file)
            return


def take_folder(folder: Path) -> bool:
    """Make a folder this process's own until it ends; ``False`` where another process has it.

    Where there are no such locks, the folder is free as long as it is not there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> take_folder(folder), take_folder(folder)
    (True, False)
    """
    if fcntl is None:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return False
        return True
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except OSError:  # no locks on this drive
        os.close(descriptor)
        return True
    status = os.fstat(descriptor)

    def let_go() -> None:  # of the lock, which is the parent's
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):  # the program may have closed it
                os.close(descriptor)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=let_go)
    return True


def is_being_written(path: Path, writer: Writer | None = None) -> bool | None:
    """Is a file still open in the process that writes it? ``None`` if unknown.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(buffering=0) as file:
    ...     mark_as_written(file.file)
    ...     is_being_written(Path(file.name)), is_being_written(Path(file.name), this_writer())
    (True, True)
    """
    locked = _is_locked(path)
    if locked is not None and (locked or writer is None or writer.host == socket.gethostname()):
        return locked
    if writer is None or writer.host != socket.gethostname():
        return None
    return _runs(writer.process) and writer.began in (0, _beginning_of(writer.process))


_is_registered = False
_locked: weakref.WeakSet[FileIO] = weakref.WeakSet()  # files that this process has locked


def _is_locked(path: Path) -> bool | None:
    """Does a process hold the lock of a file? ``None`` where there are no locks."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not make it wait
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _keep_from_children(file: FileIO) -> None:
    """Have processes that are forked let go of a file: the lock is their parent's."""
    global _is_registered
    _locked.add(file)
    if not _is_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_let_go_in_child)
        _is_registered = True


def _let_go_in_child() -> None:
    for file in [file for file in _locked if not file.closed]:
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, file.fileno(), inheritable=False)
            os.close(nowhere)


def _runs(process: int) -> bool:
    if os.name == "nt":
        return _runs_on_windows(process)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True


def _runs_on_windows(process: int) -> bool:
    import ctypes

    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
    handle = kernel.OpenProcess(0x1000, False, process)  # to ask for little
    if not handle:
        return False
    status = ctypes.c_ulong()
    is_known = kernel.GetExitCodeProcess(handle, ctypes.byref(status))
    kernel.CloseHandle(handle)
    return bool(is_known) and status.value == 259  # STILL_ACTIVE


def _beginning_of(process: int) -> int:
    """Return when a process began, in ticks since the machine did; 0 where the system does not tell."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
