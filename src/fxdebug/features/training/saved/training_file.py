"""The file ``training.jsonl`` of a watched training: written line by line, and readable during the training.

The first line has the format, the model and the settings; each further line is one step, its signs, the statistics of
a watched step (as columns, ``columns.py``), facts about the loop, an incident, or a note.
A last line that is cut short, as after a crash, is left out.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from fxdebug.errors import LoadError, SaveError
from fxdebug.features.shared.records.gradients import ParameterGradient
from fxdebug.features.shared.records.learning import LearningFacts, StepSigns, Trial
from fxdebug.features.shared.records.training import (
    Incident,
    NotLookedAt,
    ResultStatistics,
    StepHistograms,
    StepRecord,
    TrainingEnd,
    TrainingRecord,
    WatchedStep,
)
from fxdebug.features.training.saved.columns import Columns
from fxdebug.files.being_written import mark_as_written
from fxdebug.files.read_file import read_text, require_inside
from fxdebug.files.schema import Damaged, Reader, damage, integers, optional, reader_of, reals, record, shown, texts
from fxdebug.files.system_errors import system_errors_told
from fxdebug.files.what_lies_below import told_below
from fxdebug.files.write_file import write_bytes
from fxdebug.store.versioned_json import require_version

Told: TypeAlias = "LearningFacts | Trial | Incident | NotLookedAt | TrainingEnd"
Entry: TypeAlias = "StepRecord | StepSigns | WatchedStep | StepHistograms | Told | str"
FORMAT, VERSION = "fxdebug-training", 3
OLDER = (1, 2)  # without signs; with watched steps as rows: what they have is read
FILE = "training.jsonl"
_NAME = re.compile(r"training(\.rank[0-9]+)?\.jsonl")
_OLDER = "watch the training again, or read it with the fxdebug that wrote it"


def file_of(folder: Path, rank: int | None) -> Path:
    """Return the file of a watched training in a folder; ranks of a distributed training have a file each.

    >>> file_of(Path("runs"), None).name, file_of(Path("runs"), 3).name
    ('training.jsonl', 'training.rank3.jsonl')
    """
    return folder / (FILE if rank is None else FILE.replace(".", f".rank{rank}.", 1))


class TrainingFile:
    """Appends to the file of one training; each line is on its way to the disk before the next step begins.

    A line that cannot be written whole, as on a full disk, is taken back: those after it can still be read.
    """

    def __init__(self, folder: Path, model: str, every: int, rank: int | None) -> None:
        self.path = file_of(folder, rank)
        head = _line({"format": FORMAT, "version": VERSION, "model": model, "every": every, "rank": rank})
        try:
            folder.mkdir(parents=True, exist_ok=True)
            kept = _keep_earlier(self.path)
            try:
                write_bytes(self.path, head)
            except OSError:
                _put_back(kept, self.path)  # an earlier training stays where this one cannot even begin
                raise
            self._file = self.path.open("ab", buffering=0)
            mark_as_written(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                folder.rmdir()  # where it is new, and empty
            raise SaveError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._size = len(head)
        self._columns = Columns()

    def add(self, entry: Entry) -> None:
        """Append a step, what was measured of one, facts, an incident, a gap or a note. Raises ``SaveError``."""
        line = rest = _line({_KINDS.get(type(entry), "note"): self._content(entry)})
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except (OSError, ValueError) as error:  # ValueError: it was closed
            self._columns = Columns()  # what was not written is not known to who reads
            with contextlib.suppress(OSError, ValueError):
                self._file.truncate(self._size)
            raise SaveError(f"{self.path} cannot be written: {getattr(error, 'strerror', None) or error}") from error
        self._size += len(line)

    def _content(self, entry: Entry) -> Any:
        if not isinstance(entry, WatchedStep):
            return _row(entry)
        tables = {name: self._columns.packed(name, getattr(entry, name)) for name in _TABLES}
        return {"number": entry.number, **tables}

    def reopen(self) -> None:
        """Open the file again, after it was closed. Raises ``SaveError``."""
        if self._file.closed:
            try:
                self._file = self.path.open("ab", buffering=0)
            except OSError as error:
                raise SaveError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _keep_earlier(path: Path) -> Path | None:
    """Move the file of an earlier training into a folder beside it, ``earlier-1`` and so on: nothing is overwritten."""
    if path.is_symlink() or not path.is_file():
        return None
    kept = next(one for number in count(1) if not os.path.lexists(one := path.parent / f"earlier-{number}" / path.name))
    kept.parent.mkdir(exist_ok=True)
    path.rename(kept)
    return kept


def _put_back(kept: Path | None, path: Path) -> None:
    if kept is not None:
        with contextlib.suppress(OSError):
            kept.rename(path)
            kept.parent.rmdir()


def _line(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n").encode()


def _row(entry: Any) -> Any:
    """Return a record as the list of its fields; numbers that are not finite as text."""
    if isinstance(entry, float):
        return entry if math.isfinite(entry) else str(entry)
    if isinstance(entry, complex):
        return _row(abs(entry))
    if is_dataclass(entry) and not isinstance(entry, type):
        return [_row(getattr(entry, field.name)) for field in fields(entry)]
    if isinstance(entry, (tuple, list)):
        return [_row(item) for item in entry]
    return entry


# Reading -----------------------------------------------------------------------------------------


def is_training(folder: Path) -> bool:
    """Is there a file of a watched training in a folder?"""
    return folder.is_dir() and any(folder.glob("training*.jsonl"))


def training_files(names: Iterable[str]) -> list[str]:
    """Return the names that are those of files of a watched training: one, or one for each rank.

    >>> training_files(["training.rank0.jsonl", "trace.json", "training.rankA.jsonl"])
    ['training.rank0.jsonl']
    """
    return [name for name in names if _NAME.fullmatch(name)]


def read_training(folder: Path, rank: int | None = None) -> TrainingRecord:
    """Read the file of a watched training, finished or still running. Raises ``LoadError`` for a damaged file.

    Without ``rank`` the file of a training that was not distributed is read, else that of the lowest rank.
    """
    path = file_of(folder, lowest_rank(folder) if rank is None else rank)
    if not os.path.lexists(path) and (folder.is_dir() or not os.path.lexists(folder)):
        raise LoadError(_no_training(folder, path.name))
    require_inside(path, path.parent)
    with system_errors_told(path):
        return _record_of(path)


def _no_training(folder: Path, name: str) -> str:
    """Return what a folder lacks, and where trainings lie that may be meant."""
    if not folder.is_dir():
        return f"{folder} is no folder: give the one that fxdebug.watch(…, save=…) writes"
    below = told_below(folder, ("training.jsonl", "training.rank*.jsonl"), "trainings")
    return f"{folder} holds no {name}: {below or 'fxdebug.watch(…, save=…) writes it, and fxdebug.load reads a run'}"


def _record_of(path: Path) -> TrainingRecord:
    lines = read_text(path, "the file of a watched training").split("\n")
    found: dict[str, list[Any]] = {kind: [] for kind in (*_KINDS.values(), "note")}
    columns = Columns()
    try:
        first = _parsed(lines[0], 1)
        if first.get("format") == FORMAT and first.get("version") not in OLDER:
            require_version(path, first.get("version"), VERSION, _OLDER)
        head = record(first, "", _HEAD)
        if head["format"] != FORMAT:
            raise Damaged(f"format is {shown(head['format'])}, not {FORMAT}")
        for number, line in enumerate(lines[1:-1], start=2):  # the last one has no end yet, or is empty
            for kind, content in _parsed(line, number).items():
                if kind not in found:
                    raise Damaged(f"line {number}: {kind!r} is none of {', '.join(found)}")
                if kind == "watched" and isinstance(content, dict):
                    content = _rows_of(content, columns, f"line {number}")
                found[kind] += _READERS[kind]([content], lambda _, number=number: f"line {number}")  # type: ignore[misc]
    except Damaged as error:
        raise LoadError(f"{path} is damaged: {error}") from None
    return TrainingRecord(
        model=head["model"],
        every=head["every"],
        steps=tuple(found["step"]),
        watched=tuple(found["watched"]),
        incidents=tuple(found["incident"]),
        notes=tuple(found["note"]),
        rank=head["rank"],
        histograms=tuple(found["histograms"]),
        gaps=tuple(found["not looked at"]),
        signs=tuple(found["signs"]),
        learning=found["learning"][-1] if found["learning"] else None,
        trials=tuple(found["trial"]),
        end=found["end"][-1] if found["end"] else None,
    )


def _rows_of(content: Mapping[str, Any], columns: Columns, where: str) -> list[Any]:
    """Return a watched step as the list that versions before wrote."""
    tables = [columns.unpacked(name, kind, content.get(name, {}), f"{where}.{name}") for name, kind in _TABLES.items()]
    return [content.get("number"), *tables]


def read_ranks(folder: Path, rank: int | None = None) -> list[TrainingRecord]:
    """Read the files of one ``rank``, or those of all ranks from the lowest. Raises ``LoadError``."""
    ranks: list[int] = _ranks_of(folder) if rank is None else []
    return [read_training(folder, one) for one in ranks or (rank,)]


def earlier_trainings(folder: Path, rank: int | None = None) -> Iterator[tuple[str, TrainingRecord]]:
    """Yield the trainings that a folder held before the one it holds, the last one first, with their folders' names.

    One that cannot be read ends them.
    """
    name = file_of(folder, rank).name
    kept = [one.parent for one in folder.glob(f"earlier-*/{name}") if one.parent.name[8:].isdecimal()]
    for one in sorted(kept, key=lambda one: int(one.name[8:]), reverse=True):
        try:
            yield one.name, read_training(one, rank)
        except LoadError:
            return


def lowest_rank(folder: Path) -> int | None:
    """Return the lowest rank that left a file in a folder; ``None`` of a training that was not distributed."""
    return None if file_of(folder, None).exists() else min(_ranks_of(folder), default=None)


def _ranks_of(folder: Path) -> list[int]:
    """Return the ranks that left a file in a folder, from the lowest; none of a training that was not distributed."""
    return sorted(_rank_in(path) for path in folder.glob("training.rank*.jsonl"))


def _rank_in(path: Path) -> int:
    digits = path.name.removeprefix("training.rank").partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"line {number} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise damage(f"line {number}", content, "an object")
    return content


_TABLES: dict[str, type] = {"results": ResultStatistics, "parameters": ParameterGradient}
_SPECIAL: dict[Any, Reader] = {
    float: reals,
    float | None: optional(reals),
    float | int | None: optional(reals),
    float | complex | None: optional(reals),
}
_KINDS: dict[type, str] = {
    StepRecord: "step", WatchedStep: "watched", StepHistograms: "histograms", Incident: "incident",
    NotLookedAt: "not looked at", StepSigns: "signs", LearningFacts: "learning", Trial: "trial",
    TrainingEnd: "end",
}  # fmt: skip
_READERS: dict[str, Reader] = {kind: reader_of(type, _SPECIAL) for type, kind in _KINDS.items()} | {"note": texts}
_HEAD = {
    "format": texts, "version": integers(0), "model": texts, "every": integers(1), "rank": optional(integers(0)),
}  # fmt: skip
