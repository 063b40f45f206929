"""The staging folder in which a run is written before its files are published."""

from __future__ import annotations

import _thread
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from fxdebug.errors import SaveError

STAGING_PREFIX = ".fxdebug-"  # the prefix of working folders


class StagingFolder:
    """A working folder for one run: inside ``target``, or temporary when there is none.

    Raises :class:`SaveError` at once when the target is a file or cannot be written to.
    """

    def __init__(self, target: str | os.PathLike[str] | None = None) -> None:
        self.target = None if target is None else Path(target).absolute()  # the program may go elsewhere
        if self.target is None:
            self.path = Path(tempfile.mkdtemp(prefix="fxdebug-"))
        else:
            self.path = _working_folder(self.target)
        self._cleaner = weakref.finalize(self, _remove_own, self.path, os.getpid())

    def close(self) -> None:
        """Remove the working folder and what is still in it."""
        self._cleaner()


def _remove_own(folder: Path, process: int) -> None:
    """Remove a folder, if it is not the one of the process that this one was forked from."""
    if os.getpid() == process:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, without waiting for the disk to give its blocks back.

    ext4 without a journal, mounted with ``discard``, waits for the device in ``rmdir``: 3 to 20 ms. A folder that is
    open keeps its blocks until it is closed; it is gone from its place at once.
    """
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError:  # it is gone already; or this is Windows, which opens no folders
        held = None
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        try:
            _thread.start_new_thread(os.close, (held,))  # nobody is to meet it in threading.enumerate()
        except RuntimeError:  # the process is ending, or may start no more threads
            os.close(held)


def _working_folder(target: Path) -> Path:
    try:
        target.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            raise FileExistsError(f"{target} is a file")
        path = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=target))
        probe = path / "probe"
        probe.write_bytes(b"\0" * 4096)  # a full disk lets one make a folder but not fill a block
        probe.unlink()
        return path
    except FileExistsError as error:
        raise SaveError(f"cannot save to {target}: it is a file; give a folder") from error
    except OSError as error:
        raise SaveError(f"cannot save to {target}: {error.strerror or error}") from error
