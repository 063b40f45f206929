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
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
        self._cleaner = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def close(self) -> None:
        """Remove the working folder and what is still in it."""
        self._cleaner()


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


class _Published:
    """What this process last wrote under one name in one folder."""

    def __init__(self, model: Any, files: list[Path]) -> None:
        try:
            self.model: Any = weakref.ref(model)
        except TypeError:
            self.model = lambda: None
        self.files = files
        self.kept = 0  # how many earlier ones have numbers


_published: dict[tuple[str, str], _Published] = {}


def publish(work: Path, target: Path, names: Iterable[str], key: str, model: Any, *, again: bool) -> list[Path]:
    """Move files from a working folder to their names in the target; return where they are.

    ``key`` is the name of the run in this folder (two runs with one key want the same names).
    ``again``: this is another forward of a recording whose earlier one stands there: keep that one.
    Files of an earlier run of the same model, or of an earlier process, are replaced.
    """
    slot = (str(target.resolve()), key)
    earlier = _published.get(slot)
    files = [target / name for name in names]
    try:
        kept = earlier.kept if earlier is not None else 0
        obsolete: list[Path] = []
        if earlier is not None and (again or earlier.model() is not model):
            kept += 1
            _number(earlier.files, kept)
        elif earlier is not None:
            obsolete = [*earlier.files, *_numbered(target, files)]
            kept = 0
        else:
            obsolete = [*_numbered(target, files), *_shards_of(target, files)]
        for file in files:
            (work / file.name).replace(file)
        for file in set(obsolete) - set(files):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise SaveError(f"cannot write to {target}: {error.strerror or error}") from error
    _published[slot] = _Published(model, files)
    _published[slot].kept = kept
    return files


def numbered(path: Path, number: int) -> Path:
    """``trace.json`` → ``trace.2.json``; a name that would grow too long is cut in the middle."""
    suffix = f".{number}{path.suffix}"
    stem = path.name[: -len(path.suffix)]
    return path.with_name(stem.encode()[: LONGEST - len(suffix)].decode("utf-8", "ignore") + suffix)


def _number(files: list[Path], number: int) -> None:
    """Rename the files of an earlier run, and the names of its tensors inside its JSON."""
    moved = {file: numbered(file, number) for file in files if file.exists() and not _is_shard(file)}
    inside = {json.dumps(a.name)[1:-1].encode(): json.dumps(b.name)[1:-1].encode() for a, b in moved.items()}
    for file, new in moved.items():
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
