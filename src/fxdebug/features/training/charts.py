"""A watched training as lines over its steps: of the whole, of each call, of each parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fxdebug.data.measures import Unit
from fxdebug.data.report import Chart
from fxdebug.features.shared.records.gradients import ParameterGradient, TensorGradient
from fxdebug.features.shared.records.training import ResultStatistics, TrainingRecord, WatchedStep

T = TypeVar("T")
MOST = 40_000  # numbers of one chart: of a long training every second, third, … watched step is shown

_OF_RESULTS: dict[str, tuple[str, Callable[[ResultStatistics], float | None]]] = {
    "absmax": ("largest magnitude in what a call returned", lambda one: _of(one, "absmax")),
    "std": ("standard deviation of what a call returned", lambda one: _of(one, "std")),
    "gradient": ("2-norm of the gradient of what a call returned", lambda one: _norm(one.gradient)),
}
_OF_PARAMETERS: dict[str, tuple[str, Callable[[ParameterGradient], float | None]]] = {
    "grad": ("2-norm of the gradient of a parameter", lambda one: _norm(one.gradient)),
    "weight": ("2-norm of a parameter", lambda one: one.weight_norm),
    "update/weight": ("norm of the update of a parameter over its own", lambda one: _update(one)),
}
_BY_LAYER: dict[str, tuple[float, float] | None] = {"grad": None, "update/weight": (1e-4, 1e-2)}  # maps, their usual


def charts_of(record: TrainingRecord) -> tuple[Chart, ...]:
    """Return the loss, the norm of all gradients and the time by step, and statistics by watched step."""
    return (*_of_steps(record), *_of_watched(record.watched, record.model))


def _of_steps(record: TrainingRecord) -> Iterator[Chart]:
    wholes: list[tuple[str, Unit, str, list[float | None]]] = [
        ("loss", "", "mean of what backward was called on", [step.loss for step in record.steps]),
        ("grad norm", "", "2-norm of all gradients before the optimizer's step", [step.norm for step in record.steps]),
        ("time", "s", "since the step before", [step.seconds for step in record.steps]),
    ]
    for name, unit, about, line in wholes:
        known = [(step.number, one) for step, one in zip(record.steps, line) if one is not None]
        if known:
            yield Chart(
                name, unit, about, tuple([at for at, _ in known]), {name: tuple([float(one) for _, one in known])}
            )


def _of_watched(watched: Sequence[WatchedStep], model: str) -> Iterator[Chart]:
    lines = max((len(step.results) + len(step.parameters) for step in watched), default=0)
    watched = watched[:: max(1, math.ceil(len(watched) * lines / MOST))]
    if len(watched) < 2:  # a line has two points
        return
    steps = tuple([step.number for step in watched])
    results = [{f"{one.path or model}#{one.number}": one for one in reversed(step.results)} for step in watched]
    parameters = [{one.name: one for one in step.parameters} for step in watched]
    for name, (about, read) in _OF_RESULTS.items():
        yield from _chart(f"{name} of results", about, steps, results, read)
    matrices = tuple(dict.fromkeys(one.name for step in watched for one in step.parameters if len(one.shape) > 1))
    for name, (about, read_parameter) in _OF_PARAMETERS.items():
        for chart in _chart(f"{name} of parameters", about, steps, parameters, read_parameter):
            layers = tuple([one for one in matrices if one in chart.lines]) if name in _BY_LAYER else ()
            yield replace(chart, layers=layers, usual=_BY_LAYER.get(name))


def _chart(
    name: str,
    about: str,
    steps: tuple[int, ...],
    rows: Sequence[Mapping[str, T]],
    read: Callable[[T], float | None],
) -> Iterator[Chart]:
    ids = dict.fromkeys(id for row in rows for id in row)
    lines = {id: tuple([_known(read(row[id]) if id in row else None) for row in rows]) for id in ids}
    lines = {id: line for id, line in lines.items() if not all(map(math.isnan, line))}
    if lines:
        yield Chart(name, "", about, steps, lines)


def _known(number: float | None) -> float:
    return math.nan if number is None else float(number)


def _of(one: ResultStatistics, name: str) -> float | None:
    number = None if one.stats is None else getattr(one.stats, name)
    return None if number is None else abs(number) if isinstance(number, complex) else float(number)


def _norm(gradient: TensorGradient | None) -> float | None:
    return None if gradient is None else _or_infinite(gradient.norm)


def _update(one: ParameterGradient) -> float | None:
    return _or_infinite(one.update_norm / one.weight_norm) if one.update_norm is not None and one.weight_norm else None


def _or_infinite(number: float) -> float:
    """Return a number that was measured; infinity where it is NaN, which stands for one that was not."""
    return number if math.isfinite(number) else math.inf
