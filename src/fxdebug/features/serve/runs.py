"""The runs in a folder and below it: whole ones, those still being written, and folders that features read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fxdebug.files.being_written import is_being_written
from fxdebug.plugins.features import folder_kinds
from fxdebug.store.staging_folder import STAGING_PREFIX
from fxdebug.store.trace_json import journal, trace_file

DEEPEST = 6  # folders below the one that is served
MOST = 1_000  # runs that are listed
_KEPT = re.compile(r"(step|dump)-(?P<step>[0-9]{1,12})(/forward-[0-9]+)?")  # what a watched training names its runs
_HEAD = 1 << 16  # bytes of a trace.json that are read for its model and time


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run of the list: ``name`` is its folder below the one that is served, ``.`` for that one itself.

    ``kind`` is ``run``, ``unfinished``, or the name of the feature that reads the folder, such as ``training``.
    ``revision`` changes whenever the files of the run do, or their process ends. ``is_written``: does a process still
    write them? ``None`` where that cannot be told. ``ranks`` of a training have a file each.
    """

    name: str
    path: Path
    kind: str
    revision: str
    changed: float
    model: str = ""
    started: str = ""
    is_written: bool | None = False
    ranks: int = 0

    @property
    def has_card(self) -> bool:
        """Does a feature read the folder?"""
        return self.kind not in ("run", "unfinished")


def runs_in(folder: Path) -> dict[str, RunEntry]:
    """Return the runs in a folder by name, the newest first. Links are not followed: nothing outside is listed."""
    found = sorted(_entries(folder), key=lambda one: -one.changed)
    return {one.name: one for one in found[:MOST]}


def run_in(folder: Path, name: str) -> RunEntry | None:
    """Return one run by the name that :func:`runs_in` gives it; ``None`` for any other name."""
    return runs_in(folder).get(name)


def steps_kept(training: RunEntry, runs: Mapping[str, RunEntry]) -> list[tuple[int, RunEntry]]:
    """Return the saved runs of a training's steps, each with its step, in order."""
    begin = "" if training.name == "." else f"{training.name}/"
    found = [
        (int(match["step"]), one)
        for one in runs.values()
        if one.kind == "run" and one.name.startswith(begin)
        if (match := _KEPT.fullmatch(one.name[len(begin) :])) is not None
    ]
    return sorted(found, key=lambda pair: (pair[0], pair[1].name))


def _entries(root: Path) -> Iterator[RunEntry]:
    pending = [(root, 0)]
    while pending:
        folder, depth = pending.pop()
        try:
            inside = [entry for entry in os.scandir(folder) if not entry.is_symlink()]
        except OSError:
            continue
        names = {entry.name for entry in inside if entry.is_file(follow_symlinks=False)}
        folders = [Path(entry.path) for entry in inside if entry.is_dir(follow_symlinks=False)]
        entry = _entry(root, folder, names, [one for one in folders if one.name.startswith(STAGING_PREFIX)])
        if entry is not None:
            yield entry
        if depth < DEEPEST:
            pending += [(one, depth + 1) for one in folders if not one.name.startswith(".")]


def _entry(root: Path, folder: Path, names: set[str], staging: list[Path]) -> RunEntry | None:
    name = folder.relative_to(root).as_posix()
    try:
        if trace_file.FILE in names:
            status = (folder / trace_file.FILE).stat()
            model, started = _head(folder / trace_file.FILE)
            return RunEntry(name, folder, "run", _revision(status), status.st_mtime, model, started)
        journals = [path for one in staging if (path := one / journal.FILE).is_file() and not path.is_symlink()]
        kind, files = ("unfinished", []) if journals else _of_feature(folder, names)
        if journals or files:
            newest = max(journals or files, key=lambda path: path.stat().st_mtime_ns)
            status = newest.stat()
            is_written = journal.is_written(newest) if journals else any(map(is_being_written, files))
            revision = f"{_revision(status)}-{is_written}"
            return RunEntry(name, folder, kind, revision, status.st_mtime, is_written=is_written, ranks=len(files))
    except OSError:  # it went away while it was read
        return None
    return None


def _of_feature(folder: Path, names: set[str]) -> tuple[str, list[Path]]:
    """Return the feature that reads the files in a folder, and these files, one for each rank."""
    for feature, kind in folder_kinds():
        files = [] if kind.files is None else kind.files(sorted(names))
        if files:
            return feature.name, [folder / name for name in files]
    return "", []


def _revision(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def _head(path: Path) -> tuple[str, str]:
    """Return the model and the time of a run from the first lines of its file; empty where they are not there."""
    with path.open("rb") as file:
        lines = file.read(_HEAD).decode("utf-8", "replace").splitlines()
    known: dict[str, str] = {}
    for line in lines[1:]:
        try:
            fields = json.loads("{" + line.rstrip().rstrip(",") + "}")
        except (ValueError, RecursionError):
            break
        known |= {key: value for key, value in fields.items() if isinstance(value, str)}
        if "started" in known:
            break
    return known.get("model", ""), known.get("started", "")
