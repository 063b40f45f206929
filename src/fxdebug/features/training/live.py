"""A training as it is now: running, late, killed or ended, its verdict; and what was written since a byte."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

from fxdebug.features.shared.records.learning import StepSigns
from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.report import verdict_of
from fxdebug.features.training.saved.restarts import Restart, restart_of
from fxdebug.features.training.saved.training_file import file_of, lowest_rank, read_ranks
from fxdebug.files.being_written import is_being_written
from fxdebug.files.read_file import require_inside
from fxdebug.files.system_errors import system_errors_told

State: TypeAlias = Literal["running", "late", "killed", "finished", "raised", "stopped", "not known"]
LATE = 20.0  # times the usual step
LEAST_LATE = 5.0  # seconds
RECENT = 50  # steps of which the usual one is taken
MOST_BYTES = 1 << 22  # that are read at a time
_STEP, _SIGNS, _INCIDENT = b'{"step":', b'{"signs":', b'{"incident":'
_UPDATE = [one.name for one in fields(StepSigns)].index("update")


@dataclass(frozen=True, slots=True)
class TrainingState:
    """A training as it is now. ``sentence`` is its verdict's, ``is_fault`` tells whether something is at fault, and
    ``learns`` whether it is sure to learn.

    ``state``: ``late`` where the last step is older than 20 usual ones, ``killed`` where its process is gone and it
    told no end. ``losses`` are of up to 200 steps spread over all. ``constant`` is the loss of a constant answer.
    ``restart`` is where it goes on with an earlier training of its folder.
    """

    model: str
    state: State
    sentence: str
    is_fault: bool
    steps: int
    loss: float | None
    rate: float | None
    seconds: float | None
    constant: float | None
    losses: tuple[float, ...] = ()
    learns: bool = False
    restart: Restart | None = None


def training_state(folder: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> TrainingState:
    """Return a watched training as it is now. Raises ``LoadError`` for a folder without one and for a damaged file.

    >>> import tempfile, torch, fxdebug
    >>> folder = tempfile.mkdtemp()
    >>> with fxdebug.watch(torch.nn.Linear(2, 1), save=folder):
    ...     training_state(folder).state
    'running'
    >>> training_state(folder).state
    'finished'
    """
    record, *others = read_ranks(Path(folder))
    path = file_of(Path(folder), record.rank)
    verdict = verdict_of(record, others)
    losses = [step.loss for step in record.steps if step.loss is not None]
    usual = median([step.seconds for step in record.steps[-RECENT:]]) if record.steps else None
    with system_errors_told(path):
        age = clock() - path.stat().st_mtime
    last = record.steps[-1] if record.steps else None
    return TrainingState(
        record.model, _state(record, path, usual, age), verdict.sentence, verdict.state == "fault", len(record.steps),
        losses[-1] if losses else None, max(last.rates) if last is not None and last.rates else None, usual,
        verdict.constant, tuple(losses[:: max(1, len(losses) // 200)]), verdict.state == "learns",
        restart_of(record, Path(folder)),
    )  # fmt: skip


def _state(record: TrainingRecord, path: Path, usual: float | None, age: float) -> State:
    if record.end is not None:
        return record.end.how
    is_written = is_being_written(path)
    if is_written is None:
        return "not known"
    if not is_written:
        return "killed"
    return "late" if usual is not None and age > max(LATE * usual, LEAST_LATE) else "running"


def steps_since(folder: str | os.PathLike[str], offset: int) -> tuple[list[list[Any]], list[str], int]:
    """Return the steps (number, loss, norm, seconds, rates) and incidents written since a byte, and where to go on.

    A step whose signs were written has their update of the weights, over their norm, behind its rates.
    Only whole lines count; an ``offset`` beyond the file, as of one that began anew, is as 0.
    Raises ``LoadError`` for a folder without a training.

    >>> import tempfile, torch, fxdebug
    >>> folder = tempfile.mkdtemp()
    >>> with fxdebug.watch(torch.nn.Linear(2, 1), save=folder):
    ...     steps_since(folder, 0)[:2]
    ([], [])
    """
    folder = Path(folder)
    path = file_of(folder, lowest_rank(folder))
    require_inside(path, folder)
    with system_errors_told(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = offset if 0 <= offset <= size else 0
        file.seek(begin)
        content = file.read(MOST_BYTES)
    whole = content[: content.rfind(b"\n") + 1]
    steps: list[list[Any]] = []
    incidents: list[str] = []
    for line in whole.splitlines():
        if line.startswith((_STEP, _SIGNS, _INCIDENT)):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if line.startswith(_STEP):
                steps.append(entry["step"])
            elif line.startswith(_SIGNS):
                if steps and steps[-1][0] == entry["signs"][0]:
                    steps[-1].append(entry["signs"][_UPDATE])
            else:
                incidents.append(f"step {entry['incident'][0]}: {entry['incident'][4]}")
    return steps, incidents, begin + len(whole)
