"""Move the files of a finished run to their names in the target folder; earlier runs keep theirs under numbers.

Files are moved one by one with ``os.replace``. A later run of the *same* model replaces the earlier one. Another
model's run, or another forward in the same recording, keeps its files: where the new run needs a name, the file that
has it gets a number (``trace.json`` → ``trace.1.json``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from fxdebug.errors import LoadError, SaveError
from fxdebug.files.read_file import read_bytes
from fxdebug.files.write_file import replace_file, write_bytes
from fxdebug.store import measures_file
from fxdebug.store.trace_json import trace_file
from fxdebug.store.transformers.safe_file_names import MAX_NAME_BYTES

_SHARD = re.compile(rb"tensors-\d+\.safetensors")
_TENSOR_REFERENCE = re.compile(rb'"\./((?:[^"\\]|\\.)*\.safetensors)"')


class Publisher(Protocol):
    """A recording of several forwards: the files of each forward stay until the recording is closed."""

    closed: bool


class _PublishedRun:
    """A run that this process published in a folder, and the names its files have now."""

    def __init__(self, key: str, model: Any, by: Publisher | None) -> None:
        self.key = key
        self.by = by
        self.names: list[str] = []
        try:
            self._model: Any = weakref.ref(model)
        except TypeError:
            self._model = lambda: None

    def is_of_same_model(self, other: _PublishedRun) -> bool:
        """Are both runs of one model?"""
        model = self._model()
        return model is not None and model is other._model()

    def is_over(self) -> bool:
        """May a later run of the same model replace this one?"""
        return self.by is None or self.by.closed


_publish_lock = threading.RLock()  # one run at a time takes names in a folder
_locked_folders: list[str] = []  # by this process, the outermost first
PATIENCE = 60.0  # seconds to wait for another process that publishes to the same folder


@contextlib.contextmanager
def publishing_to(target: Path) -> Iterator[None]:
    """Take the right to give names in a folder: from other threads, and from other processes that use fxdebug.

    The lock is on the folder itself, so it leaves no file. File systems and machines without such locks do without.
    """
    with _publish_lock:
        name = str(target.resolve())
        handle = None if name in _locked_folders else _locked(target)
        _locked_folders.append(name)
        try:
            yield
        finally:
            _locked_folders.pop()
            if handle is not None:
                os.close(handle)


def _locked(folder: Path) -> int | None:
    """Return a handle of the folder that holds its lock until it is closed; ``None`` where there are no such locks."""
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() - began > PATIENCE:
                os.close(handle)
                raise SaveError(
                    f"cannot write to {folder}: another process has been writing to it for a minute"
                ) from None
            time.sleep(0.01)
        except OSError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise


_published_runs: dict[str, list[_PublishedRun]] = {}  # by folder


def publish(
    staging: Path,
    target: Path,
    names: Iterable[str],
    key: str,
    model: Any,
    *,
    links: Mapping[str, str] | None = None,
    by: Publisher | None = None,
    beside: bool = False,
) -> None:
    """Move files from a staging folder to their names in the target. Raises :class:`SaveError`.

    ``links``: further names, each with its file in the staging folder; several names may share a file. ``key`` is the
    kind of run in this folder: two runs of one kind want the same names. ``by`` is the recording that the run belongs
    to. ``beside``: take numbered names if an earlier run has the plain ones. Files of an earlier run of the same model,
    or of an earlier process, are replaced.
    """
    with publishing_to(target):
        try:
            sources = _sources_by_name(staging, links or {}, separate=beside)
            run = _PublishedRun(key, model, by)
            _publish_locked(staging, target, {**sources, **{name: name for name in names}}, run, beside)
        except OSError as error:
            raise SaveError(f"cannot write to {target}: {error.strerror or error}") from error


def _sources_by_name(staging: Path, links: Mapping[str, str], separate: bool) -> dict[str, str]:
    """Return the file in the staging folder for each name: a shared one where hard links work.

    Otherwise (``separate``, or a file system without hard links) each name gets a file of its own now, so that a full
    disk shows before the first file of an earlier run is replaced.
    """
    last = {source: name for name, source in links.items()}
    another = next((name for name, source in links.items() if last[source] != name), None)
    if not separate:
        if another is None:
            return dict(links)
        try:  # the first name that needs a link shows whether hard links work here
            os.link(staging / links[another], staging / another)
            return {**links, another: another}
        except OSError:
            pass
    for name, source in links.items():
        _link_or_copy(f"{staging}/{source}", f"{staging}/{name}")
    return {name: name for name in links}


def _link_or_copy(source: str, name: str) -> None:
    try:
        os.link(source, name)
    except OSError:  # no hard links here, or too many
        shutil.copyfile(source, name)


def _publish_locked(staging: Path, target: Path, sources: dict[str, str], new: _PublishedRun, beside: bool) -> None:
    runs = _published_runs.setdefault(str(target.resolve()), [])
    obsolete = _forget_replaced(runs, new)
    in_use = {name for run in runs for name in run.names}
    if not any(run.key == new.key for run in runs):  # files of an earlier process belong to no run of this one
        files = {*sources, *([measures_file.FILE] if trace_file.FILE in sources else [])}
        obsolete |= {*files, *_numbered_files(target, files), *_shards_named_in(target, sources)} - in_use
    if beside and not in_use.isdisjoint(sources):
        sources = {name: name for name in _number_files(list(sources), staging, target, set()).values()}
    new.names = list(sources)
    for run in runs:
        _free_names(run, new, target)
    _move(staging, target, sources)
    for name in obsolete.difference(sources):
        (target / name).unlink(missing_ok=True)
    runs.append(new)


def add_to_published(target: Path, name: str) -> None:
    """Count a further file in a folder to the run of this process that has the ``trace.json`` there, if any."""
    for run in _published_runs.get(str(target.resolve()), ()):
        if trace_file.FILE in run.names and name not in run.names:
            run.names.append(name)


_replace = replace_file


def _move(staging: Path, target: Path, sources: Mapping[str, str]) -> None:
    """Give each file its first name in the target by moving it, and further names by hard links."""
    moved: dict[str, str] = {}
    for name, source in sources.items():
        path = f"{target}/{name}"
        if source not in moved:
            _replace(f"{staging}/{source}", path)
            moved[source] = path
            continue
        try:
            os.link(moved[source], path)
        except OSError:  # a file of an earlier run has the name
            _link_or_copy(moved[source], f"{staging}/{name}")
            _replace(f"{staging}/{name}", path)


# Earlier runs ------------------------------------------------------------------------------------


def _forget_replaced(runs: list[_PublishedRun], new: _PublishedRun) -> set[str]:
    """Remove the runs that the new one replaces from the list; return the names of their files."""
    replaced = [run for run in runs if run.key == new.key and run.is_of_same_model(new) and run.is_over()]
    runs[:] = [run for run in runs if run not in replaced]
    return {name for run in replaced for name in run.names}


def _free_names(run: _PublishedRun, new: _PublishedRun, target: Path) -> None:
    """Give numbers to the files of an earlier run that have names the new one needs."""
    wanted = set(new.names)
    clashing = [name for name in run.names if name in wanted]
    if clashing and run.key != new.key and run.is_of_same_model(new):  # the newer run stands for both
        run.names = [name for name in run.names if name not in wanted]
    elif clashing:
        renamed = _number_files(run.names if run.key == new.key else clashing, target, target, wanted)
        run.names = [renamed.get(name, name) for name in run.names]


def numbered_path(path: Path, number: int) -> Path:
    """Return a path with a number before its suffix; a name that would grow too long is cut in the middle.

    >>> numbered_path(Path("trace.json"), 2).name
    'trace.2.json'
    """
    suffix = f".{number}{path.suffix}"
    stem = path.name[: -len(path.suffix)]
    return path.with_name(stem.encode()[: MAX_NAME_BYTES - len(suffix)].decode("utf-8", "ignore") + suffix)


def _number_files(names: list[str], folder: Path, target: Path, taken: set[str]) -> dict[str, str]:
    """Rename the files of a run, and the names of its tensors inside its JSON; return old and new names.

    All get the same number: the first that gives names neither ``taken`` nor present in the target.
    """
    files = [folder / name for name in names if not _is_shard(name)]
    files = [file for file in files if file.exists()]
    number = 1
    while any((new := numbered_path(target / file.name, number)).name in taken or new.exists() for file in files):
        number += 1
    renamed = {file.name: numbered_path(file, number).name for file in files}
    in_json = {json.dumps(a)[1:-1].encode(): json.dumps(b)[1:-1].encode() for a, b in renamed.items()}
    for file in files:
        new = file.with_name(renamed[file.name])
        if file.suffix == ".json" and file.name != trace_file.FILE:
            text = file.read_bytes()
            changed = _TENSOR_REFERENCE.sub(lambda m: b'"./' + in_json.get(m.group(1), m.group(1)) + b'"', text)
            if changed != text:
                write_bytes(new, changed)
                file.unlink()
                continue
        file.replace(new)
    return renamed


def _is_shard(name: str) -> bool:
    return _SHARD.fullmatch(name.encode()) is not None


def _numbered_files(target: Path, names: Iterable[str]) -> list[str]:
    """Return the numbered JSON files of earlier runs under these names, and the tensor files they name."""
    files: list[str] = []
    present = [file.name for file in target.iterdir()]
    for name in names:
        if not name.endswith(".json"):
            continue
        pattern = re.compile(re.escape(name.removesuffix(".json")) + r"\.\d+\.json")
        for other in filter(pattern.fullmatch, present):
            files += [other, *_tensor_files_of(target / other)]
    return files


def _tensor_files_of(path: Path) -> list[str]:
    """Return the tensor files in the same folder that a ``trace.json`` or a debug tree names."""
    if path.name.startswith(Path(trace_file.FILE).stem + "."):
        return _shards_named_in(path.parent, [path.name])
    names = [json.loads(b'"' + name + b'"') for name in _TENSOR_REFERENCE.findall(_content(path))]
    return [name for name in names if name == Path(name).name]


def _content(path: Path) -> bytes:
    """Return the content of an earlier run's file; nothing if it is not there or no file that a run leaves."""
    try:
        return read_bytes(path)
    except LoadError:
        return b""


def _shards_named_in(target: Path, names: Iterable[str]) -> list[str]:
    """Return the shards that the ``trace.json`` among these names refers to."""
    shards: set[str] = set()
    for name in names:
        if name.startswith("trace."):
            shards |= {shard.decode() for shard in _SHARD.findall(_content(target / name))}
    return sorted(shards)


def next_shard(target: Path | None) -> int:
    """Return the number of the first shard that a new run in this folder may use."""
    if target is None or not target.is_dir():
        return 1
    taken = [int(path.stem.partition("-")[2]) for path in target.iterdir() if _is_shard(path.name)]
    return max(taken, default=0) + 1
