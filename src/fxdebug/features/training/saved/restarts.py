"""Trainings that go on with an earlier one of their folder: the curves of both on one axis of steps.

That a training goes on is known from its optimizer: it had a state before the first step that was seen. Where that
counts its steps, as Adam's does, the axis is that count; else one training is drawn after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fxdebug.data.report import Chart
from fxdebug.features.shared.records.learning import GOES_ON
from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.saved.training_file import earlier_trainings

MOST = 4  # trainings in front of one
MOST_POINTS = 1000  # of all
OWN = "loss since the restart"


@dataclass(frozen=True, slots=True)
class Part:
    """A training before a restart: the name of its folder, and its losses by step, on the axis of all parts."""

    name: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Restart:
    """A training that goes on with ``parts``, the first of them first: its step 0 is ``step`` on the axis of all.

    ``is_counted``: the optimizers count their steps, so that the axis is theirs. One of ``each`` steps is drawn, the
    same ones of all parts: a line has no gap where two overlap.
    """

    step: int
    is_counted: bool
    parts: tuple[Part, ...]
    each: int = 1

    @property
    def text(self) -> str:
        """The sentence beside the curves: what lies in front, and where the restart was."""
        before = f"in front: {' and '.join(part.name for part in self.parts)}; restarted"
        if self.is_counted:
            return f"{before} at step {self.step}"
        return f"{before}, at which step is not known: drawn one after the other"


def restart_of(record: TrainingRecord, folder: Path) -> Restart | None:
    """Return where a training goes on with an earlier one of its folder; ``None`` of one that began by itself."""
    goes_on, count = _made_before(record)
    if not goes_on:
        return None
    before: list[tuple[str, TrainingRecord]] = []
    for name, one in earlier_trainings(folder, record.rank):
        if one.model != record.model or len(before) == MOST:
            break
        before.insert(0, (name, one))
        if not _made_before(one)[0]:
            break
    if not before:
        return None
    counts = [_made_before(one)[1] for _, one in before]
    is_counted = None not in (*counts, count)
    begins, end, last = [], 0, 0
    for (_, one), known in zip(before, counts):
        begins.append(known if is_counted and known is not None else end)
        end = begins[-1] + len(one.steps)
        last = max(last, end)
    step = count if is_counted and count is not None else end
    each = max(1, math.ceil(max(last, step + len(record.steps)) / MOST_POINTS))
    parts = [Part(name, _points(one, begin, each)) for (name, one), begin in zip(before, begins)]
    return Restart(step, is_counted, tuple(parts), each)


def chart_of(record: TrainingRecord, restart: Restart) -> Chart | None:
    """Return the losses of a training and of those it goes on with, as one chart with a line at the restart."""
    own = _points(record, restart.step, restart.each)
    lines = {OWN: dict(own)} | {part.name: dict(part.points) for part in restart.parts}
    if not all(lines.values()):
        return None
    steps = sorted({step for line in lines.values() for step in line})
    drawn = {name: tuple([line.get(step, math.nan) for step in steps]) for name, line in lines.items()}
    return Chart(OWN, "", restart.text, tuple(steps), drawn, marks=((restart.step, "restarted"),))


def _points(record: TrainingRecord, begin: int, each: int) -> tuple[tuple[int, float], ...]:
    places = ((begin + one.number, one.loss) for one in record.steps)
    return tuple([(step, float(loss)) for step, loss in places if loss is not None and step % each == 0])


def _made_before(record: TrainingRecord) -> tuple[bool, int | None]:
    """Return whether its optimizers had made steps before those of a training, and how many, where it is known."""
    facts = record.learning
    sign = None if facts is None else next((one for one in facts.beside if one.name == GOES_ON), None)
    if sign is None:
        return False, 0
    return True, int(sign.numbers[0]) if sign.numbers else None
