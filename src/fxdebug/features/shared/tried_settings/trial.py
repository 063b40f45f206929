"""Try knobs on a copy of a model: time in pairs, peak of memory, and the change of the result."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members
from fxdebug.data.measures import quantity
from fxdebug.data.report import Column, ReportData
from fxdebug.errors import UsageError, first_line, nearest
from fxdebug.features.shared.tried_settings import anomalies as _anomalies  # noqa: F401  # registers its knob
from fxdebug.features.shared.tried_settings import checkpointed as _checkpointed  # noqa: F401  # the same
from fxdebug.features.shared.tried_settings import model_knobs as _model_knobs  # noqa: F401  # the same
from fxdebug.features.shared.tried_settings import recomputed as _recomputed  # noqa: F401  # the same
from fxdebug.features.shared.tried_settings.free_cores import FreeCores
from fxdebug.features.shared.tried_settings.knobs import KNOBS, Try
from fxdebug.features.shared.tried_settings.pairs import Clock as Clock
from fxdebug.features.shared.tried_settings.pairs import Outcome, paired
from fxdebug.features.shared.tried_settings.pairs import first_step as first_step
from fxdebug.features.shared.tried_settings.subject import NotHere, optimizers_like, untrained_by
from fxdebug.features.shared.tried_settings.subject import Subject as Subject
from fxdebug.features.shared.tried_settings.verdict import (
    REFUSED,
    TAKE,
    Change,
    Gain,
    Verdict,
    gain_of,
    is_busy,
    may_gain,
    verdict_of,
)

PAIRS = 9
MORE = 3  # times as many pairs where both clocks are disturbed: the interval of a median narrows with their root
TAKEN = 0.25  # of a core, by other programs: with more, threads are measured that wait for one another
BRIEF = 0.1  # seconds of a step: with longer ones more pairs would take minutes
LATE = 10  # steps until the first one has paid: fewer are not worth a word


@dataclass(frozen=True)
class TrialRow:
    """One change that was tried, or could not be.

    ``gain`` is how many times as fast a step is, with ``low`` and ``high`` as its interval; ``peak`` are the bytes a
    step takes at most above what was there. ``change`` is the largest change of a result as a share of the largest
    number of its tensor, and ``begins`` the call where it begins; ``agreement`` the share of rows whose largest
    element is the same (%). ``first`` are the seconds of the first step, and ``paid_back`` the steps until the gain
    has made up for it. ``code`` are the lines to write.
    """

    change_of: str
    verdict: Verdict
    gain: float | None
    low: float | None
    high: float | None
    peak: int | None
    change: float | None
    begins: str
    agreement: float | None
    first: float | None
    paid_back: int | None
    why: str
    code: str


COLUMNS: Final = (
    Column("change_of", "change"),
    Column("verdict", "verdict"),
    Column("gain", "times as fast"),
    Column("low", "from", "", "the interval of the gain, with 95 %"),
    Column("high", "to"),
    Column("peak", "peak", "B", "most bytes of a step, above what was there"),
    Column("change", "change of result", "", "the largest, as a share of the largest number"),
    Column("begins", "begins at"),
    Column("agreement", "argmax equal", "%", "rows with the same largest element"),
    Column("first", "first step", "s"),
    Column("paid_back", "paid back", "", "steps until the first one has paid"),
    Column("why", "why", shown=False),
    Column("code", "code", shown=False),
)


@dataclass
class Trials:
    """Trials against one base: its first step, its control, and the tolerance for changes of the result.

    ``start`` is never run where there is an optimizer, and so has its weights; ``base`` is what runs. Without a
    ``clock``, ``by`` is that on the wall, or that of processors where other work disturbs the first too much.
    """

    start: Subject
    pairs: int = PAIRS
    tolerance: float | None = None
    clock: Clock | None = None
    by: Clock = "wall"
    control: Gain = field(default_factory=lambda: Gain(1.0, 1.0, 1.0))
    seconds: float = 0.0
    outcome: Outcome | None = None
    _base: Subject | None = None
    _free: FreeCores = field(default_factory=FreeCores)

    @property
    def base(self) -> Subject:
        """The subject that runs: the model itself, or a copy of it where there is an optimizer."""
        if self._base is None:
            self._base = self.start.to_run()
        return self._base

    @classmethod
    def of(
        cls,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        loss: Callable[[Any], Tensor] | None,
        optimizer: Any = None,
        **options: Any,
    ) -> Trials:
        """Return trials of a model; raises ``UsageError`` where a step of it cannot be made."""
        make = optimizers_like(optimizer)
        if make is not None and loss is None:
            raise UsageError("optimizer without loss: give the loss that a step minimises, too")
        if members.device_of(model, (args, dict(kwargs))).type == "meta":
            raise UsageError("the model is on the meta device, where nothing is computed: there is no time to measure")
        subject = Subject(model, args, kwargs, loss, make, untrained=untrained_by(optimizer, model))
        return cls(Subject.with_optimizer(subject), **options)

    def begin(self) -> None:
        """Measure the base against itself, by the first clock that is not disturbed; if both are, with more pairs."""
        self.outcome = first_step(self.base)
        self._free = FreeCores()
        clocks: list[Clock] = [self.clock or "wall"]
        if (
            self.clock is None
            and members.device_of(self.start.model, (self.start.args, dict(self.start.kwargs))).type == "cpu"
        ):
            clocks.append("processor")
        for times in (1, MORE):
            self.pairs *= times
            for self.by in reversed(clocks) if times > 1 else clocks:
                self.control, seconds = self._against_itself(self.by)
                if self.by == clocks[0]:
                    self.seconds = seconds
                if not is_busy(self.control):
                    return
            if self.seconds >= BRIEF:
                break
        self.by = clocks[0]

    def _against_itself(self, clock: Clock) -> tuple[Gain, float]:
        """Return what the base gains over itself, which is noise, and the seconds of its step."""
        gains, seconds = [], 0.0
        for _ in range(2):
            before, after = paired(self.base, self.base, self.pairs, clock)
            gains.append(gain_of(before, after))
            seconds = median(before) / 1e9
        return Gain(gains[0].median, min(g.low for g in gains), max(g.high for g in gains)), seconds

    def attempt(self, one: Try) -> tuple[TrialRow, Subject | None]:
        """Return what a change brings, and the subject that has it; ``None`` where it is not possible."""
        assert self.outcome is not None
        if self.by == "processor" and one.threads:
            return _refused(
                one, "cannot tell by the time of processors: measure with clock='wall', on a machine without other work"
            ), None
        free = self._free.count() if one.threads else None
        if free is not None and free < one.threads - TAKEN:
            return _refused(one, f"cannot tell: other programs leave {free:.1f} of {one.threads} cores"), None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                subject = one.prepare(self.start.to_run())
                outcome = first_step(subject)
                change = change_of(self.outcome.tensors, outcome.tensors, subject.rows)
                before, after = paired(self.base, subject, self.pairs, self.by)
                gain = _per_row(gain_of(before, after), subject.rows)
                again = None
                if may_gain(gain, self.control):
                    again = _per_row(gain_of(*paired(self.base, subject, self.pairs, self.by)), subject.rows)
        except NotHere as reason:
            return _refused(one, f"not possible here: {reason}"), None
        except Exception as error:
            return _refused(one, f"not possible here: {type(error).__name__}: {first_line(error)}"), None
        verdict, why = verdict_of(gain, again, self.control, change, self.tolerance)
        usual, saved = median(after) / 1e9, (median(before) - median(after)) / 1e9
        extra = outcome.first / 1e9 - usual
        return TrialRow(
            change_of=one.name,
            verdict=verdict,
            gain=gain.median,
            low=gain.low,
            high=gain.high,
            peak=outcome.peak,
            change=change.largest,
            begins=change.where if change.largest else "",
            agreement=change.agreement,
            first=outcome.first / 1e9,
            paid_back=max(0, round(extra / saved)) if saved > 0 and verdict != REFUSED else None,
            why=why,
            code=one.code,
        ), subject


def _per_row(gain: Gain, rows: int) -> Gain:
    return Gain(gain.median * rows, gain.low * rows, gain.high * rows)


def _refused(one: Try, why: str) -> TrialRow:
    return TrialRow(one.name, REFUSED, None, None, None, None, None, "", None, None, None, why, one.code)


@contextmanager
def as_before(base: Subject) -> Iterator[None]:
    """Put the model, the random generators and the settings of the process back after trials."""
    threads, flags = torch.get_num_threads(), [(m, m.training) for m in members.modules_of(base.model)]
    depth = sys.getrecursionlimit()  # inductor raises it for good
    try:
        with base.unchanged():
            yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if sys.getrecursionlimit() != depth:
            sys.setrecursionlimit(depth)
        for module, training in flags:
            module.training = training


def tries_of(subject: Subject, names: Sequence[str] | None) -> list[Try]:
    """Return what is tried: of the knobs that are named, or of all that need not be asked for."""
    for name in names or ():
        if name not in KNOBS:
            raise UsageError(f"no knob {name!r}; there is {', '.join(KNOBS)}.{nearest(name, list(KNOBS))}")
    chosen = [KNOBS[name] for name in KNOBS if (name in names if names else not KNOBS[name].asked_for)]
    return [one for knob in chosen for one in knob.tries(subject)]


def combined(trials: Trials, rows: Sequence[TrialRow], tries: Sequence[Try]) -> tuple[list[str], Gain | None]:
    """Add the changes to take one by one, the best first, as long as each still helps; return those kept, and the gain.

    They are applied in the order of the registry, so that compiling comes last.
    """
    best = sorted([row for row in rows if row.verdict == TAKE], key=lambda row: -(row.low or 0.0))
    kept: list[str] = []
    current, gain = trials.base, None
    for row in best:
        wanted = [one for one in tries if one.name in (*kept, row.change_of)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                subject = trials.start.to_run()
                for one in wanted:
                    subject = one.prepare(subject)
                first_step(subject, peak=False)
                on_top = gain_of(*paired(current, subject, trials.pairs, trials.by)) if kept else None
                if on_top is not None and not may_gain(on_top, trials.control):
                    continue
                whole = gain_of(*paired(trials.base, subject, trials.pairs, trials.by))
            except Exception:  # two changes that exclude one another
                continue
        kept, current, gain = [*kept, row.change_of], subject, whole
    return kept, gain


def change_of(before: dict[str, Tensor], after: dict[str, Tensor], rows: int = 1) -> Change:
    """Return the largest change of any tensor, as a share of the largest number of it, and the agreement of rows."""
    missing = before.keys() ^ after.keys()
    if missing:
        return Change(form=f"{min(missing)} is in one of both only")
    largest, where, agreement = 0.0, "", None
    for name, one in before.items():
        other = after[name]
        if rows > 1 and other.dim() and other.shape[0] == rows * one.shape[0]:
            other = other[: one.shape[0]]
        if one.shape != other.shape:
            if one.dim() != other.dim() or not all(a >= b for a, b in zip(one.shape, other.shape)):
                return Change(form=f"{name} is {tuple(other.shape)}, and was {tuple(one.shape)}")
            one = one[tuple(slice(0, size) for size in other.shape)]
        size = _share(one, other)
        if size > largest or size != size:
            largest, where = (float("inf") if size != size else size), name
        if agreement is None and name.startswith("output") and one.is_floating_point() and one.dim() > 1:
            same = one.float().argmax(-1) == other.float().argmax(-1)
            agreement = 100 * same.float().mean().item() if one.shape[-1] > 1 and same.numel() else None
    return Change(largest, where, agreement)


def _share(one: Tensor, other: Tensor) -> float:
    """Return the largest difference as a share of the largest number; NaN where only one of both has NaN."""
    if one.is_complex() or other.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    a, b = one.detach().to("cpu", torch.float64), other.detach().to("cpu", torch.float64)
    if not a.numel():
        return 0.0
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("nan")
    a, b = a.nan_to_num(0.0, 0.0, 0.0), b.nan_to_num(0.0, 0.0, 0.0)
    difference = (a - b).abs().max().item()
    return difference / max(a.abs().max().item(), 1e-30) if difference else 0.0


def told(row: Any) -> str:
    """Return what a trial measured, in words."""
    if row.gain is None:
        return str(row.why)
    parts = [f"{row.gain:.2f} [{row.low:.2f}, {row.high:.2f}] times as fast"]
    if row.peak is not None:
        parts.append(f"peak {quantity(row.peak, 'B')}")
    if row.change:
        parts.append(f"changes by {row.change:.1g}, from {row.begins} on")
        if row.agreement is not None:
            parts.append(f"argmax {row.agreement:.1f} % equal")
    if row.paid_back and row.paid_back >= LATE:
        parts.append(f"first step {quantity(row.first, 's')}, paid back after {row.paid_back:,}")
    if row.why and row.verdict == REFUSED:
        parts.insert(0, row.why)
    return "; ".join(parts)


BY_PROCESSORS = "other work disturbs the clock on the wall: gains are those in the time that processors work"


def trials_part(subject: str, rows: Sequence[TrialRow]) -> ReportData[TrialRow]:
    """Return trials as a part of another report."""
    return ReportData("trials", subject, COLUMNS, tuple(rows), settings={"by": "change"}, ranked=False, folds=False)
