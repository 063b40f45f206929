"""Several trainings over each other: their losses as lines of one chart, and what differs in their settings."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.report import Cell, Chart, Column, ReportData
from fxdebug.errors import UsageError
from fxdebug.exports.page.run import PageOptions
from fxdebug.exports.page.write import trace_page
from fxdebug.features.shared.records.training import StepRecord, TrainingRecord
from fxdebug.features.training.page import run_of
from fxdebug.features.training.report import verdict_of
from fxdebug.features.training.saved.training_file import earlier_trainings, read_ranks
from fxdebug.features.training.verdict.seen import found, g

MOST = 5
FEWEST = 10  # losses that are equal by no chance
MOST_POINTS = 2000  # of a line
_PLACES = "abcde"
_OWN, _OFF = "optimizer ", ("False", "0", "0.0", "None")


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting or result, and what it is in each training."""

    setting: str
    a: Cell = None
    b: Cell = None
    c: Cell = None
    d: Cell = None
    e: Cell = None


def page_of_trainings(folders: Mapping[str, str | os.PathLike[str]], live: Mapping[str, Any] | None = None) -> str:
    """Return the page of two to five trainings by their names: losses over each other, and what differs between them.

    ``live`` is as for a run.
    Raises ``UsageError`` for another number of them, ``LoadError`` for a folder without a training.
    """
    if not 2 <= len(folders) <= MOST:
        raise UsageError(f"{len(folders)} trainings cannot be laid over each other: choose 2 to {MOST}")
    report = trainings_report({name: read_ranks(Path(folder))[0] for name, folder in folders.items()})
    shown = run_of(TrainingRecord(report.subject, every=1))
    return trace_page(shown, PageOptions(check=False, reports=(report,)), live)


def trainings_report(records: Mapping[str, TrainingRecord]) -> ReportData[SettingRow]:
    """Return what differs between trainings: their settings, then what came of them; and their curves."""
    told = {name: settings_of(record) for name, record in records.items()}
    names = dict.fromkeys(setting for one in told.values() for setting in one)
    rows, alike = [], []
    for setting in names:
        cells = [one.get(setting) for one in told.values()]
        is_own = setting.startswith(_OWN)  # another kind of optimizer has none such
        if len(set(cells) - ({None} if is_own else set())) > 1:
            rows.append(SettingRow(setting, *cells))
        elif None not in cells and not (is_own and cells[0] in _OFF):
            alike.append(f"{setting} {cells[0]}")
    differing = len(rows)
    results = {name: _results(record) for name, record in records.items()}
    rows += [SettingRow(name, *[one[name] for one in results.values()]) for name in next(iter(results.values()), {})]
    notes = [Note(f"Alike in all: {', '.join(alike)}")] if alike else []
    if not differing:
        notes.insert(0, Note("Nothing that is recorded of their settings differs: the data, the seed or the code may"))
    return ReportData(
        analysis="trainings",
        subject=", ".join(records),
        columns=(
            Column("setting", ""),
            *[Column(place, name) for place, name in zip(_PLACES, records)],
        ),
        rows=tuple(rows),
        findings=tuple(_alike_among(records)),
        notes=tuple(notes),
        charts=tuple(_charts(records)),
    )


def beside_earlier(record: TrainingRecord, folder: Path, rank: int | None = None) -> list[Finding]:
    """Return what is told of a training beside the one that its folder held before."""
    earlier = next(earlier_trainings(folder, rank), None)
    return [] if earlier is None else as_before(record, earlier[1], earlier[0])


def as_before(record: TrainingRecord, earlier: TrainingRecord, name: str) -> list[Finding]:
    """Return that a training went as the one before it, kept as ``name``, although their settings differ."""
    one = same_as(record, earlier, f"the training before ({name})")
    return [] if one is None else [one]


def _alike_among(records: Mapping[str, TrainingRecord]) -> Iterator[Finding]:
    """Yield trainings that went as one before them, although their settings differ."""
    names = list(records)
    for place, name in enumerate(names):
        for before in names[:place]:
            one = same_as(records[name], records[before], before)
            if one is not None:
                yield replace(one, what=f"{name}: {one.what}")


def same_as(record: TrainingRecord, other: TrainingRecord, name: str) -> Finding | None:
    """Return that a training went as ``other``, called ``name``, to the last bit, although their settings differ."""
    both = min(len(record.steps), len(other.steps))
    record, other = _beginning(record, both), _beginning(other, both)  # what one was later is no setting of these steps
    ours, theirs = ([step.loss for step in one.steps if step.loss is not None] for one in (record, other))
    shared = len(ours)
    if shared < FEWEST or ours != theirs or len(set(ours)) == 1:
        return None
    mine, its = settings_of(record), settings_of(other)
    differ = [f"{key} {its[key]} → {told}" for key, told in mine.items() if key in its and its[key] != told]
    if not differ:
        return None
    return found(
        "as before", WARNING,
        f"the losses of all {shared} steps equal those of {name} to the last bit, although {', '.join(differ[:3])} "
        "differs: what was changed has no effect",
        "Look whether the loop uses the setting: a second optimizer or scheduler, an option that is not passed on.",
        measured=float(shared),
    )  # fmt: skip


def _beginning(record: TrainingRecord, steps: int) -> TrainingRecord:
    known = {step.number for step in record.steps[:steps]}
    signs = tuple([one for one in record.signs if one.number in known])
    return replace(record, steps=record.steps[:steps], signs=signs)


def settings_of(record: TrainingRecord) -> dict[str, Cell]:
    """Return the settings of a training by name, as far as they are recorded.

    >>> settings_of(TrainingRecord("Net", 50, steps=(StepRecord(0, 2.3, 1.0, 0.1, (0.1,)),)))
    {'model': 'Net', 'learning rate': '0.1'}
    """
    facts, signs = record.learning, record.signs
    found: dict[str, Cell] = {"model": record.model}
    if facts is not None:
        found["optimizer"] = " + ".join(dict.fromkeys(one.name for one in facts.optimizers)) or None
        found |= {f"{_OWN}{name}": told for one in facts.optimizers for name, told in one.settings}
    rates = [step.rates for step in record.steps if step.rates]
    if rates:
        found["learning rate"] = _rate([max(one) for one in rates])
        if any(min(one) != max(one) for one in rates):
            found["lowest learning rate of a group"] = _rate([min(one) for one in rates])
    if signs:
        found["weight decay"] = g(max(one.decay for one in signs))
        found["batch"] = f"{median([one.batch for one in signs]):.0f}"
        found["backwards of a step"] = f"{median([one.backwards for one in signs]):.0f}"
        found["factor of a scaler"] = g(signs[-1].scale) if signs[-1].scale != 1 else "none"
    if facts is not None:
        found["loss"] = f"{facts.loss.kind} ({facts.loss.reduction})" if facts.loss.kind else "not known"
        found["weights"] = facts.dtype
        found["matrices"] = f"{facts.matrices:,}"
        found["dropouts"] = f"{facts.drops:,}"
    return found


def _rate(rates: Sequence[float]) -> str:
    """Return a learning rate, or how it went."""
    course = list(dict.fromkeys([rates[0], max(rates), rates[-1]]))
    return " → ".join(map(g, course))


def _results(record: TrainingRecord) -> dict[str, Cell]:
    losses = [step.loss for step in record.steps if step.loss is not None]
    usual = median([step.seconds for step in record.steps]) if record.steps else None
    verdict = verdict_of(record)
    return {
        "steps": f"{len(record.steps):,}",
        "first loss": g(losses[0]) if losses else None,
        "lowest loss": g(min(losses)) if losses else None,
        "loss now": g(losses[-1]) if losses else None,
        "time of a step": None if usual is None else f"{1000 * usual:.3g} ms",
        "verdict": verdict.rule or verdict.state,
    }


def _charts(records: Mapping[str, TrainingRecord]) -> list[Chart]:
    known = {name: {step.number: step for step in record.steps} for name, record in records.items()}
    steps = sorted({number for one in known.values() for number in one})
    steps = steps[:: max(1, math.ceil(len(steps) / MOST_POINTS))]
    charts = []
    for title, about, read in (
        ("loss", "mean of what backward was called on", lambda step: step.loss),
        ("grad norm", "2-norm of all gradients before the optimizer's step", lambda step: step.norm),
        ("learning rate", "the highest of the optimizer's groups", _highest),
    ):
        lines = {
            name: tuple([_number(read(of[step])) if step in of else math.nan for step in steps])
            for name, of in known.items()
        }
        if any(not math.isnan(number) for line in lines.values() for number in line):
            charts.append(Chart(title, "", about, tuple(steps), lines))
    return charts


def _highest(step: StepRecord) -> float | None:
    return max(step.rates, default=None)


def _number(number: float | None) -> float:
    return math.nan if number is None else float(number)
