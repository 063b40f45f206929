"""A training run that was watched: every step in short, some steps with statistics, incidents. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from fxdebug.brief import brief
from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.values import Stats
from fxdebug.features.shared.records.gradients import ParameterGradient, TensorGradient
from fxdebug.features.shared.records.learning import LearningFacts, StepSigns, Trial

Trouble: TypeAlias = Literal[
    "loss",
    "gradient",
    "spike",
    "exception",
    "skipped",
    "no step",
    "no gradient",
    "not optimised",
    "other optimizer",
    "not registered",
    "loss input",
    "maximizes",
]
NUMBERS: Final[tuple[Trouble, ...]] = ("loss", "gradient", "spike", "skipped")  # the numbers of the step are at fault


@brief
@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of the optimizer: its number from 0, the loss, the total norm of the gradients, seconds since the last.

    The loss is the mean of those that ``backward`` was called on; ``None`` where it was called on no scalar. The norm
    is ``None`` where there was no gradient, and in most steps of a large model, where it was not taken.
    ``rates`` are the learning rates of the optimizer's groups, empty where they are not known.
    """

    number: int
    loss: float | None
    norm: float | None
    seconds: float
    rates: tuple[float, ...] = ()


@brief
@dataclass(frozen=True, slots=True)
class ResultStatistics:
    """One tensor that a call returned in a watched step, and its gradient where the backward reached it.

    ``position`` and ``parent`` number the calls of the step, as
    :class:`~fxdebug.features.shared.records.gradients.ResultGradient` does.
    """

    position: int
    path: str
    number: int
    type: str
    parent: int | None
    place: str
    shape: tuple[int, ...]
    stats: Stats | None
    gradient: TensorGradient | None


@brief
@dataclass(frozen=True, slots=True)
class WatchedStep:
    """A step with statistics: of what calls returned, of gradients, of weights and their updates."""

    number: int
    results: tuple[ResultStatistics, ...]
    parameters: tuple[ParameterGradient, ...]


@brief
@dataclass(frozen=True, slots=True)
class NamedHistogram:
    """The histogram of one parameter, or of its gradient."""

    name: str
    histogram: Histogram


@brief
@dataclass(frozen=True, slots=True)
class StepHistograms:
    """The histograms of a watched step: of the weights after it, and of the gradients that it used."""

    number: int
    weights: tuple[NamedHistogram, ...]
    gradients: tuple[NamedHistogram, ...]


@brief
@dataclass(frozen=True, slots=True)
class Incident:
    """A step in which something went wrong, explained by running it again under the tracer.

    ``path``, ``op``, ``node`` and ``source`` name the first guilty operation, ``what`` says what it did. They are
    empty where the model's own run is healthy: then ``what`` says where else to look. ``inputs`` are the shapes of
    the step's inputs by place. ``run`` is the folder of the saved run. Where no number is at fault but what the
    training is made of (no step is made, layers are not registered), nothing runs again.
    """

    step: int
    trouble: Trouble
    loss: float | None
    norm: float | None
    what: str
    path: str = ""
    op: str = ""
    node: str = ""
    source: str | None = None
    inputs: tuple[str, ...] = ()
    run: str | None = None
    rank: int | None = None


@brief
@dataclass(frozen=True, slots=True)
class NotLookedAt:
    """A part of a step that could not be looked at, as something of ours failed: what is known of it has a gap."""

    step: int
    what: str


@brief
@dataclass(frozen=True, slots=True)
class TrainingEnd:
    """The end of a training: it ran to the end of its loop, raised, or was stopped by what was found."""

    how: Literal["finished", "raised", "stopped"]


@brief
@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """A watched training: the model, all steps, watched steps and their histograms, incidents, notes, and gaps.

    ``signs`` are further numbers of each step, ``learning`` are the facts about the loop that were taken last,
    ``trials`` the changes that were tried. ``end`` is ``None`` while it goes on, and where its process was killed.
    """

    model: str
    every: int
    steps: tuple[StepRecord, ...] = ()
    watched: tuple[WatchedStep, ...] = ()
    incidents: tuple[Incident, ...] = ()
    notes: tuple[str, ...] = ()
    rank: int | None = None
    histograms: tuple[StepHistograms, ...] = ()
    gaps: tuple[NotLookedAt, ...] = ()
    signs: tuple[StepSigns, ...] = ()
    learning: LearningFacts | None = None
    trials: tuple[Trial, ...] = ()
    end: TrainingEnd | None = None
