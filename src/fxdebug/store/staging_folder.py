"""The folder in which a run is written until it is whole: a crash leaves the old run or the new one."""

from __future__ import annotations

import _thread
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from fxdebug.errors import SaveError

STAGING_PREFIX = ".fxdebug-"  # names of staging folders begin with it


class StagingFolder:
    """The staging folder of one run: inside ``target``, or among the system's temporary files without one.

    Raises :class:`SaveError` when the target is a file or cannot be written to.
    """

    def __init__(self, target: str | os.PathLike[str] | None = None) -> None:
        self.target = None if target is None else Path(target).absolute()  # the program may change its directory
        if self.target is None:
            self.path = Path(tempfile.mkdtemp(prefix="fxdebug-"))
        else:
            self.path = _make_folder_in(self.target)
        self._remove = weakref.finalize(self, _remove_in_same_process, self.path, os.getpid())

    def close(self) -> None:
        """Remove the staging folder with everything still in it."""
        self._remove()


def _remove_in_same_process(folder: Path, process: int) -> None:
    """Remove a folder, unless this process was forked from the one that made it."""
    if os.getpid() == process:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder without waiting for the disk to free its blocks.

    ext4 without a journal, mounted with ``discard``, waits for the device in ``rmdir``: 3 to 20 ms. A folder that is
    open disappears at once and keeps its blocks until it is closed, which a thread does.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # the folder is gone already; or this is Windows, which opens no folders
        descriptor = None
    shutil.rmtree(folder, ignore_errors=True)
    if descriptor is not None:
        try:
            _thread.start_new_thread(os.close, (descriptor,))  # not listed by threading.enumerate()
        except RuntimeError:  # the process is ending, or may start no more threads
            os.close(descriptor)


def _make_folder_in(target: Path) -> Path:
    try:
        target.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            raise FileExistsError(f"{target} is a file")
        path = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=target))
        probe = path / "probe"
        probe.write_bytes(b"\0" * 4096)  # on a full disk a folder can be made, but no block filled
        probe.unlink()
        return path
    except FileExistsError as error:
        raise SaveError(f"cannot save to {target}: it is a file; give a folder") from error
    except OSError as error:
        raise SaveError(f"cannot save to {target}: {error.strerror or error}") from error
