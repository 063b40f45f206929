"""A watched training as lines over its steps: of the whole, of each call, of each parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fxdebug.data.measures import Unit
from fxdebug.data.report import Chart
from fxdebug.features.shared.records.gradients import ParameterGradient, TensorGradient
from fxdebug.features.shared.records.learning import StepSigns
from fxdebug.features.shared.records.training import ResultStatistics, TrainingRecord, WatchedStep
from fxdebug.features.training.verdict.progress import constant_of, unit_of

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
CONSTANT = "a constant answer"
_BY_LAYER: dict[str, tuple[float, float] | None] = {"grad": None, "update/weight": (1e-4, 1e-2)}  # maps, their usual


def charts_of(record: TrainingRecord) -> tuple[Chart, ...]:
    """Return the loss, the learning rate, updates, the norm of all gradients and the time by step; and what is watched.

    Beside the loss lies that of a constant answer, beside the time of a step its parts.
    """
    return (*_of_steps(record), *_of_watched(record.watched, record.model))


def _of_steps(record: TrainingRecord) -> Iterator[Chart]:
    steps, signs = record.steps, {one.number: one for one in record.signs}
    numbers = [step.number for step in steps]
    constant = constant_of(record)
    known = [signs.get(number) for number in numbers]

    def of_signs(read: Callable[[StepSigns], float | None]) -> list[float | None]:
        return [None if one is None else read(one) for one in known]

    yield from _whole("loss", "", "mean of what backward was called on", numbers, {
        "loss": [step.loss for step in steps],
        CONSTANT: [None if constant is None else constant * unit_of(record)] * len(steps),
    })  # fmt: skip
    yield from _whole("learning rate", "", "the highest of the optimizer's groups", numbers, {
        "learning rate": [max(step.rates, default=None) for step in steps],
        "the lowest": [min(step.rates) if len(set(step.rates)) > 1 else None for step in steps],
    })  # fmt: skip
    about = "median over the matrices, of some of their elements; the band is what is usual"
    updates = {"update/weight": of_signs(lambda one: one.update)}
    yield from _whole("update/weight", "", about, numbers, updates, usual=_BY_LAYER["update/weight"])
    norms: dict[str, list[float | None]] = {"grad norm": [step.norm for step in steps]}
    yield from _whole("grad norm", "", "2-norm of all gradients before the optimizer's step", numbers, norms)
    yield from _whole("time", "s", "since the step before, and its parts", numbers, {
        "time": [step.seconds for step in steps],
        "before the forward": of_signs(lambda one: one.before), "DataLoader": of_signs(lambda one: one.loading),
        "forward": of_signs(lambda one: one.forward),
        "backward": of_signs(lambda one: one.backward), "optimizer": of_signs(lambda one: one.optimizer),
    })  # fmt: skip


def _whole(
    name: str, unit: Unit, about: str, steps: Sequence[int], lines: Mapping[str, Sequence[float | None]],
    usual: tuple[float, float] | None = None,
) -> Iterator[Chart]:  # fmt: skip
    """Yield a chart of lines about the whole, at the steps of which the first is known; the others where any is."""
    at = [place for place, one in enumerate(lines[name]) if one is not None]
    if at:
        drawn = {id: tuple([_known(line[place]) for place in at]) for id, line in lines.items()}
        drawn = {id: line for id, line in drawn.items() if not all(map(math.isnan, line))}
        yield Chart(name, unit, about, tuple([steps[place] for place in at]), drawn, usual=usual)


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
