"""Move a finished run's files to their names in the target folder; earlier runs keep theirs under numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fxdebug.errors import SaveError
from fxdebug.store.trace_json import trace_file
from fxdebug.store.transformers.safe_file_names import MAX_NAME_BYTES

_SHARD = re.compile(rb"tensors-\d+\.safetensors")
_TENSOR_REFERENCE = re.compile(rb'"\./((?:[^"\\]|\\.)*\.safetensors)"')


# Earlier runs ------------------------------------------------------------------------------------


class Publisher(Protocol):
    """A recording of several forwards: what one of them wrote stays while the recording is on."""

    closed: bool


class _PublishedRun:
    """What this process wrote of one run into one folder, under the names it has by now."""

    def __init__(self, key: str, model: Any, by: Publisher | None) -> None:
        self.key = key
        self.by = by
        self.names: list[str] = []
        try:
            self._model: Any = weakref.ref(model)
        except TypeError:
            self._model = lambda: None

    def is_of(self, other: _PublishedRun) -> bool:
        """Are both runs of one model?"""
        model = self._model()
        return model is not None and model is other._model()

    def is_over(self) -> bool:
        return self.by is None or self.by.closed


publish_lock = threading.RLock()  # names in a folder are given out to one run at a time
_published_runs: dict[str, list[_PublishedRun]] = {}  # by folder


def publish(
    work: Path,
    target: Path,
    names: Iterable[str],
    key: str,
    model: Any,
    *,
    links: Mapping[str, str] | None = None,
    by: Publisher | None = None,
    beside: bool = False,
) -> None:
    """Move files from a working folder to their names in the target.

    ``links``: further names, and the file in the working folder that each is to have; several may want one.
    ``key`` is the kind of run in this folder: two of one kind want the same names. ``by`` is the
    recording it is part of; ``beside`` leaves the names to the run that has them. Files of an earlier
    run of the same model, or of an earlier process, are replaced.
    """
    with publish_lock:
        try:
            ready = _sources_by_name(work, links or {}, apart=beside)
            _publish_locked(
                work, target, {**ready, **{name: name for name in names}}, _PublishedRun(key, model, by), beside
            )
        except OSError as error:
            raise SaveError(f"cannot write to {target}: {error.strerror or error}") from error


def _sources_by_name(work: Path, links: Mapping[str, str], apart: bool) -> dict[str, str]:
    """The file in the working folder for each name: one for all that want it, where hard links will do.

    Otherwise (``apart``, or a file system without them) each name gets its own file now: what can fill the disk is
    done before the first of an earlier run's files is replaced.
    """
    last = {source: name for name, source in links.items()}
    another = next((name for name, source in links.items() if last[source] != name), None)
    if not apart:
        if another is None:
            return dict(links)
        try:  # the first that needs a link tells whether there are any
            os.link(work / links[another], work / another)
            return {**links, another: another}
        except OSError:
            pass
    for name, source in links.items():
        _link_or_copy(f"{work}/{source}", f"{work}/{name}")
    return {name: name for name in links}


def _link_or_copy(source: str, name: str) -> None:
    try:
        os.link(source, name)
    except OSError:  # no hard links here, or too many
        shutil.copyfile(source, name)


def _publish_locked(work: Path, target: Path, sources: dict[str, str], new: _PublishedRun, beside: bool) -> None:
    runs = _published_runs.setdefault(str(target.resolve()), [])
    obsolete = _forget_replaced(runs, new)
    standing = {name for run in runs for name in run.names}
    if not any(run.key == new.key for run in runs):  # of an earlier process, if it is nobody's
        obsolete |= {*_numbered_files(target, sources), *_shards_named_in(target, sources)} - standing
    if beside and not standing.isdisjoint(sources):
        sources = {name: name for name in _number_files(list(sources), work, target, set()).values()}
    new.names = list(sources)
    for run in runs:
        _free_names(run, new, target)
    _move(work, target, sources)
    for name in obsolete.difference(sources):
        (target / name).unlink(missing_ok=True)
    runs.append(new)


_replace = os.replace  # of hundreds of files: to make paths of their names would take longer than to move them


def _move(work: Path, target: Path, sources: Mapping[str, str]) -> None:
    """Give each file its name in the target, and its further names by hard links."""
    where: dict[str, str] = {}
    for name, source in sources.items():
        place = f"{target}/{name}"
        if source not in where:
            _replace(f"{work}/{source}", place)
            where[source] = place
            continue
        try:
            os.link(where[source], place)
        except OSError:  # there is a file of an earlier run
            _link_or_copy(where[source], f"{work}/{name}")
            _replace(f"{work}/{name}", place)


def _forget_replaced(runs: list[_PublishedRun], new: _PublishedRun) -> set[str]:
    """The files of earlier runs of the same model, which are taken off the list."""
    mine = [run for run in runs if run.key == new.key and run.is_of(new) and run.is_over()]
    runs[:] = [run for run in runs if run not in mine]
    return {name for run in mine for name in run.names}


def _free_names(run: _PublishedRun, new: _PublishedRun, target: Path) -> None:
    """Give numbers to the files of an earlier run where the new one needs the names."""
    wanted = set(new.names)
    clashing = [name for name in run.names if name in wanted]
    if clashing and run.key != new.key and run.is_of(new):  # of one model: the newer one stands for both
        run.names = [name for name in run.names if name not in wanted]
    elif clashing:
        moved = _number_files(run.names if run.key == new.key else clashing, target, target, wanted)
        run.names = [moved.get(name, name) for name in run.names]


def numbered_path(path: Path, number: int) -> Path:
    """``trace.json`` → ``trace.2.json``; a name that would grow too long is cut in the middle."""
    suffix = f".{number}{path.suffix}"
    stem = path.name[: -len(path.suffix)]
    return path.with_name(stem.encode()[: MAX_NAME_BYTES - len(suffix)].decode("utf-8", "ignore") + suffix)


def _number_files(names: list[str], folder: Path, target: Path, taken: set[str]) -> dict[str, str]:
    """Rename the files of a run, and the names of its tensors inside its JSON: old names and new ones.

    The number is one that no file in the target has, nor any name that is ``taken``.
    """
    files = [folder / name for name in names if not _is_shard(name)]
    files = [file for file in files if file.exists()]
    number = 1
    while any((new := numbered_path(target / file.name, number)).name in taken or new.exists() for file in files):
        number += 1
    moved = {file.name: numbered_path(file, number).name for file in files}
    inside = {json.dumps(a)[1:-1].encode(): json.dumps(b)[1:-1].encode() for a, b in moved.items()}
    for file in files:
        new = file.with_name(moved[file.name])
        if file.suffix == ".json" and file.name != trace_file.FILE:
            text = file.read_bytes()
            changed = _TENSOR_REFERENCE.sub(lambda m: b'"./' + inside.get(m.group(1), m.group(1)) + b'"', text)
            if changed != text:
                beside = file.with_name(file.name[:200] + ".part")
                beside.write_bytes(changed)
                beside.replace(new)
                file.unlink()
                continue
        file.replace(new)
    return moved


def _is_shard(name: str) -> bool:
    return _SHARD.fullmatch(name.encode()) is not None


def _numbered_files(target: Path, names: Iterable[str]) -> list[str]:
    """Numbered JSON files of an earlier run under these names, and the tensors they refer to."""
    found: list[str] = []
    there = [file.name for file in target.iterdir()]
    for name in names:
        if not name.endswith(".json"):
            continue
        pattern = re.compile(re.escape(name.removesuffix(".json")) + r"\.\d+\.json")
        for other in filter(pattern.fullmatch, there):
            found += [other, *_tensor_files_of(target / other)]
    return found


def _tensor_files_of(tree: Path) -> list[str]:
    if tree.name.startswith(Path(trace_file.FILE).stem + "."):
        return _shards_named_in(tree.parent, [tree.name])
    names = [json.loads(b'"' + name + b'"') for name in _TENSOR_REFERENCE.findall(tree.read_bytes())]
    return [name for name in names if name == Path(name).name]


def _shards_named_in(target: Path, names: Iterable[str]) -> list[str]:
    """The shards that a ``trace.json`` which is about to be replaced refers to."""
    found: set[str] = set()
    for name in names:
        if name.startswith("trace.") and (target / name).exists():
            found |= {shard.decode() for shard in _SHARD.findall((target / name).read_bytes())}
    return sorted(found)


def next_shard(target: Path | None) -> int:
    """The number of the first shard a new run in this folder may use."""
    if target is None or not target.is_dir():
        return 1
    taken = [int(path.stem.partition("-")[2]) for path in target.iterdir() if _is_shard(path.name)]
    return max(taken, default=0) + 1
