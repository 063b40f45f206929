"""The folder in which a run is written until it is whole: a crash leaves the old run or the new one."""

from __future__ import annotations

import _thread
import contextlib
import errno
import functools
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from fxdebug.errors import SaveError
from fxdebug.files.system_errors import system_reason

STAGING_PREFIX = ".fxdebug-"  # names of staging folders begin with it
_ABANDONED = 24 * 3600.0  # seconds


class StagingFolder:
    """The staging folder of one run: inside ``target``, or among the system's temporary files without one.

    Raises :class:`SaveError` when the target is a file or cannot be written to.
    """

    def __init__(self, target: str | os.PathLike[str] | None = None) -> None:
        self.target = None if target is None else Path(target).absolute()  # the program may change its directory
        self._made: list[Path] = []  # folders that were not there before, the innermost first
        if self.target is None:
            _remove_abandoned()
            self.path = Path(tempfile.mkdtemp(prefix=f"fxdebug-{os.getpid()}-"))
        else:
            self._made = [folder for folder in (self.target, *self.target.parents) if not folder.exists()]
            self.path = _make_folder_in(self.target, self._made)
        _spare.take()
        self._remove = weakref.finalize(self, _remove_in_same_process, self.path, os.getpid())

    def close(self) -> None:
        """Remove the staging folder with everything still in it, and the folders made for it that are empty now."""
        self._remove()
        _remove_empty(self._made)


@functools.cache
def _remove_abandoned() -> None:
    """Remove the temporary folders of processes that were killed more than a day ago: nothing can come back to them."""
    for folder in Path(tempfile.gettempdir()).glob("fxdebug-*-*"):
        process = folder.name.split("-")[1]
        with contextlib.suppress(OSError):
            is_old = process.isdecimal() and time.time() - folder.lstat().st_mtime > _ABANDONED
            if is_old and not folder.is_symlink() and not _is_alive(int(process)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # os.kill would end it there
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _remove_in_same_process(folder: Path, process: int) -> None:
    """Remove a folder, unless this process was forked from the one that made it."""
    if os.getpid() == process:
        try:
            _remove(folder)
        except BaseException:  # an interrupt: nothing would come back to what is left of the folder
            _remove(folder)
            raise
        finally:
            _spare.give_back()


def _remove(folder: Path) -> None:
    """Remove a folder without waiting for the disk to free its blocks.

    ext4 without a journal, mounted with ``discard``, waits for the device in ``rmdir``: 3 to 20 ms. A folder that is
    open disappears at once and keeps its blocks until it is closed, which a thread does.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # the folder is gone already; or this is Windows, which opens no folders
        descriptor = None
    _empty(folder)
    if descriptor is not None:
        try:
            _thread.start_new_thread(os.close, (descriptor,))  # not listed by threading.enumerate()
        except RuntimeError:  # the process is ending, or may start no more threads
            os.close(descriptor)


def _empty(folder: Path) -> None:
    """Remove a folder and its files, also in a process that can open no further files."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return
        with contextlib.suppress(OSError), _spare.lent():
            _empty(folder)
        return
    for name in names:
        with contextlib.suppress(OSError):
            folder.joinpath(name).unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
    if folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)  # there are folders in it


class _SpareHandle:
    """A file handle that is kept while there are staging folders: listing their files needs one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._folders = 0
        self._handle: int | None = None

    def take(self) -> None:
        with self._lock:
            self._folders += 1
            self._open()

    def give_back(self) -> None:
        with self._lock:
            self._folders -= 1
            if self._folders <= 0:
                self._close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Close the handle, so that another file can be opened meanwhile."""
        with self._lock:
            if self._handle is None:
                raise OSError(errno.EMFILE, "no spare file handle")
            self._close()
            try:
                yield
            finally:
                self._open()

    def _open(self) -> None:
        if self._handle is None:
            with contextlib.suppress(OSError):
                self._handle = os.open(os.devnull, os.O_RDONLY)

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_spare = _SpareHandle()


def _make_folder_in(target: Path, made: list[Path]) -> Path:
    try:
        target.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            raise FileExistsError(f"{target} is a file")
        try:
            path = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=target))
        except FileNotFoundError:  # another process has just removed the folder, which was empty
            target.mkdir(parents=True, exist_ok=True)
            path = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=target))
        try:
            probe = path / "probe"
            probe.write_bytes(b"\0" * 4096)  # on a full disk a folder can be made, but no block filled
            probe.unlink()
        except BaseException:
            with contextlib.suppress(OSError):
                probe.unlink()
            path.rmdir()
            raise
        return path
    except FileExistsError as error:
        raise SaveError(f"cannot save to {target}: it is a file; give a folder") from error
    except OSError as error:
        _remove_empty(made)
        raise SaveError(f"cannot save to {target}: {system_reason(error)}") from error
