"""Read a file that somebody else may have made: regular, of bounded size, and inside its folder."""

from __future__ import annotations

import io
import os
import stat
import zlib
from pathlib import Path

from fxdebug.errors import LoadError
from fxdebug.files.system_errors import system_errors_told, system_reason

MOST_BYTES = 1 << 31  # no file with more is read
EXPANDED_BYTES = 16 << 20  # a gzipped file may always hold this much,
EXPANDED_TIMES = 64  # and a large one so many times its own size
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


def require_inside(path: Path, folder: Path) -> None:
    """Raise :class:`LoadError` if a file of a folder is a link out of it."""
    try:
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise LoadError(f"{path} is a link out of its folder: copy the file, or load it by its own name")
    except (OSError, RuntimeError) as error:  # Python 3.11 and 3.12 raise RuntimeError for a link to itself
        raise LoadError(f"{path} cannot be read: {system_reason(error) or error}") from error


def require_regular(path: Path) -> None:
    """Raise :class:`LoadError` if there is no regular file at a path: a folder, a pipe, a device, a dead link."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read: {system_reason(error) or error}") from error
    if not stat.S_ISREG(mode):
        raise LoadError(f"{path} is {_kind(mode)}, not a file")


def require_readable(path: Path) -> None:
    """Raise :class:`LoadError` if a regular file cannot be opened: safetensors would say that there is none."""
    require_regular(path)
    with system_errors_told(path):
        io.FileIO(path, "rb", opener=_open).close()


def is_regular_inside(path: Path, folder: Path) -> bool:
    """Is there a regular file at a path in a folder, and no link out of it?"""
    try:
        require_inside(path, folder)
        require_regular(path)
    except LoadError:
        return False
    return True


def first_bytes(path: Path, count: int) -> bytes:
    """Return the first bytes of a regular file. Raises :class:`LoadError`."""
    require_regular(path)
    with system_errors_told(path), io.FileIO(path, "rb", opener=_open) as file:
        return file.read(count) or b""


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file, unpacked if it is gzipped. Raises :class:`LoadError`."""
    require_regular(path)  # before it is opened: opening a device may do something
    with system_errors_told(path), io.FileIO(path, "rb", opener=_open) as file:
        mode = os.fstat(file.fileno())
        if not stat.S_ISREG(mode.st_mode):
            raise LoadError(f"{path} is {_kind(mode.st_mode)}, not a file")
        if mode.st_size > MOST_BYTES:
            raise LoadError(f"{path} has {mode.st_size} bytes: more than {MOST_BYTES} are not read")
        return _read_all(file, path)


def read_text(path: Path, what: str) -> str:
    """Return the text of a file, which should hold ``what``. Raises :class:`LoadError`."""
    try:
        with system_errors_told(path):
            return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} is not {what}: it is not text") from error


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe in its place must not wait for a writer


def _read_all(file: io.FileIO, path: Path) -> bytes:
    """Return the content; stop at the first byte that no text has, as a file full of holes is nothing but those."""
    first = file.read(_CHUNK) or b""
    unpack = zlib.decompressobj(wbits=31) if first.startswith(_GZIP) else None
    found, packed, chunk, size = [], 0, first, 0
    while chunk:
        packed += len(chunk)
        if unpack is not None:
            room = max(EXPANDED_BYTES, EXPANDED_TIMES * packed) - size
            try:
                chunk = unpack.decompress(chunk, room + 1)
            except zlib.error as error:
                raise LoadError(f"{path} is cut short or damaged: {error}") from error
            if len(chunk) > room:
                raise LoadError(f"{path} unpacks to more than {EXPANDED_TIMES} times its size: it is no file of ours")
        if b"\0" in chunk:
            raise LoadError(f"{path} is cut short or damaged: it is not text")
        size += len(chunk)
        found.append(chunk)
        if size > MOST_BYTES:
            raise LoadError(f"{path} holds more than {MOST_BYTES} bytes: they are not read")
        chunk = file.read(_CHUNK) or b""
    if unpack is not None and not unpack.eof:
        raise LoadError(f"{path} is cut short or damaged: its end is missing")
    return b"".join(found)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")
