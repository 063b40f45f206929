"""Folders that hold runs: written beside, renamed into place, earlier runs kept under numbers.

A run is written in a working folder inside its target and moved file by file when it is whole, so a
crash leaves the old run or the new one. A later run of the *same* model replaces the earlier one;
another model, or another forward in the same recording, keeps its files: what holds a name moves
to a number (``trace.json`` → ``trace.1.json``) when the next one needs the name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from fxdebug.errors import SaveError
from fxdebug.store import load
from fxdebug.store.names import LONGEST

WORKING = ".fxdebug-"  # the prefix of working folders

_SHARD = re.compile(rb"tensors-\d+\.safetensors")
_REFERENCE = re.compile(rb'"\./((?:[^"\\]|\\.)*\.safetensors)"')


class Workplace:
    """A working folder for one run: inside ``target``, or temporary when there is none.

    Raises :class:`SaveError` at once when the target is a file or cannot be written to.
    """

    def __init__(self, target: str | os.PathLike[str] | None = None) -> None:
        self.target = None if target is None else Path(target)
        if self.target is None:
            self.path = Path(tempfile.mkdtemp(prefix="fxdebug-"))
        else:
            self.path = _working_folder(self.target)
        self._cleaner = weakref.finalize(self, _remove, self.path)

    def close(self) -> None:
        """Remove the working folder and what is still in it."""
        self._cleaner()


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
            threading.Thread(target=os.close, args=(held,), name="fxdebug-closing", daemon=True).start()
        except RuntimeError:  # the process is ending, or may start no more threads
            os.close(held)


def _working_folder(target: Path) -> Path:
    try:
        target.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            raise FileExistsError(f"{target} is a file")
        path = Path(tempfile.mkdtemp(prefix=WORKING, dir=target))
        probe = path / "probe"
        probe.write_bytes(b"\0" * 4096)  # a full disk lets one make a folder but not fill a block
        probe.unlink()
        return path
    except FileExistsError as error:
        raise SaveError(f"cannot save to {target}: it is a file; give a folder") from error
    except OSError as error:
        raise SaveError(f"cannot save to {target}: {error.strerror or error}") from error


# Earlier runs ------------------------------------------------------------------------------------


class Publisher(Protocol):
    """A recording of several forwards: what one of them wrote stays while the recording is on."""

    closed: bool


class _Published:
    """What this process wrote of one run into one folder, under the names it has by now."""

    def __init__(self, key: str, model: Any, by: Publisher | None) -> None:
        self.key = key
        self.by = by
        self.files: list[Path] = []
        try:
            self._model: Any = weakref.ref(model)
        except TypeError:
            self._model = lambda: None

    def is_of(self, other: _Published) -> bool:
        """Are both runs of one model?"""
        model = self._model()
        return model is not None and model is other._model()

    def is_over(self) -> bool:
        return self.by is None or self.by.closed


publishing = threading.RLock()  # names in a folder are given out to one run at a time
_published: dict[str, list[_Published]] = {}  # by folder


def publish(
    work: Path,
    target: Path,
    names: Iterable[str],
    key: str,
    model: Any,
    *,
    by: Publisher | None = None,
    beside: bool = False,
) -> list[Path]:
    """Move files from a working folder to their names in the target; return where they are.

    ``key`` is the kind of run in this folder: two of one kind want the same names. ``by`` is the
    recording it is part of; ``beside`` leaves the names to the run that has them. Files of an earlier
    run of the same model, or of an earlier process, are replaced.
    """
    with publishing:
        try:
            return _publish(work, target, [target / name for name in names], _Published(key, model, by), beside)
        except OSError as error:
            raise SaveError(f"cannot write to {target}: {error.strerror or error}") from error


def _publish(work: Path, target: Path, files: list[Path], new: _Published, beside: bool) -> list[Path]:
    runs = _published.setdefault(str(target.resolve()), [])
    obsolete = _forgotten(runs, new)
    if not any(run.key == new.key for run in runs):  # of an earlier process, if it is nobody's
        standing = {file for run in runs for file in run.files}
        obsolete |= {*_numbered(target, files), *_shards_of(target, files)} - standing
    new.files = files
    if beside and any(file in run.files for run in runs for file in files):
        moved = _number([work / file.name for file in files], target, set())
        new.files = [target / moved.get(file.name, file.name) for file in files]
    for run in runs:
        _make_room(run, new)
    for file in new.files:
        (work / file.name).replace(file)
    for file in obsolete - set(new.files):
        file.unlink(missing_ok=True)
    runs.append(new)
    return new.files


def _forgotten(runs: list[_Published], new: _Published) -> set[Path]:
    """The files of earlier runs of the same model, which are taken off the list."""
    mine = [run for run in runs if run.key == new.key and run.is_of(new) and run.is_over()]
    runs[:] = [run for run in runs if run not in mine]
    return {file for run in mine for file in run.files}


def _make_room(run: _Published, new: _Published) -> None:
    """Give numbers to the files of an earlier run where the new one needs the names."""
    clashing = [file for file in run.files if file in new.files]
    if clashing and run.key != new.key and run.is_of(new):  # of one model: the newer one stands for both
        run.files = [file for file in run.files if file not in clashing]
    elif clashing:
        moved = _number(run.files if run.key == new.key else clashing, clashing[0].parent, set(new.files))
        run.files = [file.with_name(moved.get(file.name, file.name)) for file in run.files]


def numbered(path: Path, number: int) -> Path:
    """``trace.json`` → ``trace.2.json``; a name that would grow too long is cut in the middle."""
    suffix = f".{number}{path.suffix}"
    stem = path.name[: -len(path.suffix)]
    return path.with_name(stem.encode()[: LONGEST - len(suffix)].decode("utf-8", "ignore") + suffix)


def _number(files: list[Path], target: Path, taken: set[Path]) -> dict[str, str]:
    """Rename the files of a run, and the names of its tensors inside its JSON: old names and new ones.

    The number is one that no file in the target has, nor any name that is ``taken``.
    """
    files = [file for file in files if file.exists() and not _is_shard(file)]
    number = 1
    while any((new := numbered(target / file.name, number)) in taken or new.exists() for file in files):
        number += 1
    moved = {file.name: numbered(file, number).name for file in files}
    inside = {json.dumps(a)[1:-1].encode(): json.dumps(b)[1:-1].encode() for a, b in moved.items()}
    for file in files:
        new = file.with_name(moved[file.name])
        if file.suffix == ".json" and file.name != load.FILE:
            text = file.read_bytes()
            changed = _REFERENCE.sub(lambda m: b'"./' + inside.get(m.group(1), m.group(1)) + b'"', text)
            if changed != text:
                beside = file.with_name(file.name[:200] + ".part")
                beside.write_bytes(changed)
                beside.replace(new)
                file.unlink()
                continue
        file.replace(new)
    return moved


def _is_shard(file: Path) -> bool:
    return _SHARD.fullmatch(file.name.encode()) is not None


def _numbered(target: Path, files: list[Path]) -> list[Path]:
    """Numbered JSON files of an earlier run under these names, and the tensors they refer to."""
    found: list[Path] = []
    for file in files:
        if file.suffix != ".json":
            continue
        pattern = re.compile(re.escape(file.stem) + r"\.\d+\.json")
        for other in target.iterdir():
            if pattern.fullmatch(other.name):
                found += [other, *_tensors_of(other)]
    return found


def _tensors_of(tree: Path) -> list[Path]:
    if tree.name.startswith(Path(load.FILE).stem + "."):
        return _shards_of(tree.parent, [tree])
    names = [json.loads(b'"' + name + b'"') for name in _REFERENCE.findall(tree.read_bytes())]
    return [tree.parent / name for name in names if name == Path(name).name]


def _shards_of(target: Path, files: list[Path]) -> list[Path]:
    """The shards that a ``trace.json`` which is about to be replaced refers to."""
    found: set[Path] = set()
    for file in files:
        if file.name.startswith("trace.") and file.exists():
            found |= {target / name.decode() for name in _SHARD.findall(file.read_bytes())}
    return sorted(found)


def next_shard(target: Path | None) -> int:
    """The number of the first shard a new run in this folder may use."""
    if target is None or not target.is_dir():
        return 1
    taken = [int(path.stem.partition("-")[2]) for path in target.iterdir() if _is_shard(path)]
    return max(taken, default=0) + 1
