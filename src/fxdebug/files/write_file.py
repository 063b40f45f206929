"""Write a file, or the files of a folder, whole or not at all: a full disk leaves the old ones, never half of a new."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fxdebug.printable import printable_json, printable_lines


def replace_file(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Give a file a name; a file that has it goes. Where that one is open or mapped, as on Windows, it is moved aside.

    Tensors that were read from a file are mapped. Windows lets such a file be renamed, not replaced.
    """
    try:
        os.replace(source, path)  # noqa: PTH105 - of texts: for hundreds of files, making paths takes longer
    except PermissionError:
        place = Path(path)
        aside = place.with_name(f".fxdebug-old-{os.urandom(4).hex()}-{place.name}")
        place.rename(aside)  # raises where it is the folder that may not be written to
        try:
            os.replace(source, path)  # noqa: PTH105
        except BaseException:
            aside.rename(place)
            raise
        with contextlib.suppress(OSError):  # it stays while it is mapped
            aside.unlink()


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield the path to write to: a file of the same kind beside ``path``, which takes its name at the end.

    A pipe or a device, such as ``/dev/stdout``, is written to directly. A link stays, and the file it leads to is
    replaced. If the block raises, nothing remains of the new file.
    """
    place = path.resolve() if path.is_symlink() else path
    try:
        mode: int | None = place.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        yield path
        return
    part = Path(tempfile.mkdtemp(prefix=".fxdebug-part-", dir=place.parent))
    new = part / place.name
    try:
        yield new
        if mode is not None:
            new.chmod(stat.S_IMODE(mode))
        replace_file(new, place)
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            part.rmdir()


@contextlib.contextmanager
def all_written_whole(path: Path) -> Iterator[Path]:
    """Yield the path to write a file or a folder to, whichever its writer makes there, with further files beside it.

    They take their names when the block is over: a folder that is there keeps its other files. If the block raises,
    nothing remains of them, and what was there stays.
    """
    if path.exists() and not (path.is_dir() or path.is_file()):  # a pipe or a device
        yield path
        return
    if path.is_dir():
        path = path.resolve()  # "." has no name
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".fxdebug-part-", dir=path if path.is_dir() else path.parent))
    try:
        yield part / path.name
        for file in sorted(part.rglob("*")):
            place = path.parent / file.relative_to(part)
            if file.is_dir() and not file.is_symlink():
                place.mkdir(exist_ok=True)
            else:
                replace_file(file, place.resolve() if place.is_symlink() else place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_text(path: Path, text: str) -> Path:
    """Write a text file in UTF-8, whole or not at all; return its path.

    What is not printable in it is escaped, in JSON as JSON does; line breaks and tabs are kept.
    """
    safe = printable_json if path.suffix == ".json" else printable_lines
    return write_bytes(path, "\t".join(map(safe, text.split("\t"))).encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file, whole or not at all; return its path."""
    with written_whole(path) as new:
        new.write_bytes(data)
    return path
