"""The folder of builds, the file of the build for this torch and Python, and the conditions for loading it."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import sysconfig
from pathlib import Path

from fxdebug.errors import NativeError

SOURCES = Path(__file__).parent / "cpp"
MODULE = "fxdebug_core"  # of the C function PyInit_fxdebug_core


def source_files() -> list[Path]:
    """Return the C++ files, and the headers that they include, in the order of their names."""
    return sorted(path for path in SOURCES.iterdir() if path.suffix in (".cpp", ".h"))


def cache_folder() -> Path:
    """Return the folder with all builds: ``native`` in fxdebug's part of the user's cache folder."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fxdebug" / "native"
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if given.startswith("/") else Path.home() / ".cache"  # the standard ignores relative paths
    return cache / "fxdebug" / "native"


def build_file() -> Path:
    """Return the file of the build for this torch, this Python and these sources, whether or not it is there."""
    import torch

    digest = hashlib.sha256()
    for path in source_files():
        digest.update(f"{path.name}\n".encode() + path.read_bytes() + b"\0")
    digest.update(str(torch.version.git_version).encode())  # builds from source may share a version
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"  # names Python's version and the processor
    python = suffix.strip(".").rpartition(".")[0] or sys.implementation.cache_tag
    return cache_folder() / f"torch-{torch.__version__}-{python}-{digest.hexdigest()[:16]}" / f"{MODULE}{suffix}"


def unsupported() -> str | None:
    """Return why no build can work here; ``None`` where one can."""
    if sys.platform not in ("linux", "darwin"):
        return f"the core is built for Linux and macOS, not for {sys.platform}"
    if sys.implementation.name != "cpython":
        return f"the core is built for CPython, not for {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the core needs the interpreter's lock, which this Python is built without"
    return None


def require_private(file: Path) -> None:
    """Raise :class:`~fxdebug.errors.NativeError` unless only this user can have written a build: its code will run."""
    if not stat.S_ISREG(file.lstat().st_mode):
        raise NativeError(f"{file} is not a file")
    _require_own(file)
    for folder in _own_folders(file.parent):
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise NativeError(f"{folder} is not a folder")
        _require_own(folder)


def make_private(folder: Path) -> None:
    """Make the folder of a build, and those of ours above it, so that only this user can write to them.

    Raises :class:`~fxdebug.errors.NativeError` if one is there that others can write to.
    """
    folder.parent.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in reversed(_own_folders(folder)):
        each.mkdir(mode=0o700, exist_ok=True)
        _require_own(each)


def _own_folders(folder: Path) -> list[Path]:
    """Return the folder of a build, ``native`` and ``fxdebug``."""
    return [folder, folder.parent, folder.parent.parent]


def _require_own(path: Path) -> None:
    found = path.lstat()
    if found.st_uid != os.getuid():
        raise NativeError(f"{path} belongs to another user (number {found.st_uid})")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NativeError(f"others may write to {path} (chmod go-w)")
