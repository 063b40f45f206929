"""``watch``: follow a training loop, and explain the step in which it goes wrong."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

from torch import nn
from torch.optim import Optimizer

from fxdebug.analyses.cost.no_memory import no_memory
from fxdebug.analyses.numbers import numerics
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import fx_debug
from fxdebug.capture.probe import UserLines, members, named_tensors, special_tensors
from fxdebug.data.findings import Finding
from fxdebug.data.measures import counted
from fxdebug.errors import SaveError, UsageError, first_line, with_article
from fxdebug.exports import registry
from fxdebug.features.shared.gradients import gradient_runs
from fxdebug.features.shared.gradients.rules import not_finite
from fxdebug.features.shared.gradients.updates import not_optimised, not_registered, other_optimizer
from fxdebug.features.shared.gradients.wrong_loss_input import wrong_loss_input
from fxdebug.features.shared.records.learning import LearningFacts, StepSigns, Trial
from fxdebug.features.shared.records.training import (
    NUMBERS,
    Incident,
    NotLookedAt,
    StepHistograms,
    StepRecord,
    TrainingEnd,
    TrainingRecord,
    Trouble,
    WatchedStep,
)
from fxdebug.features.training.actions import DUMP, STOP, Acting, Actions, StopTraining, checked_actions
from fxdebug.features.training.overlay import as_before, beside_earlier
from fxdebug.features.training.recorder.held_forward import HeldForward
from fxdebug.features.training.recorder.held_memory import note_on_memory
from fxdebug.features.training.recorder.loop_facts import MANY, SETTLED, SKIPS, LoopFacts
from fxdebug.features.training.recorder.watcher import Watcher
from fxdebug.features.training.report import TrainingRow, training_report, verdict_of
from fxdebug.features.training.saved.columns import with_rounded
from fxdebug.features.training.saved.training_file import (
    Entry,
    TrainingFile,
    earlier_trainings,
    read_ranks,
    read_training,
)
from fxdebug.features.training.spikes import LEAST_STEPS, RECENT, is_spike
from fxdebug.features.training.trials.try_changes import try_changes
from fxdebug.features.training.verdict.judge import Verdict
from fxdebug.printable import printable
from fxdebug.store.rank_folders import rank_and_size

MOST_INCIDENTS = 3  # explained and saved; a training that stays broken would fill the disk
MOST_NOTES = 20
FACTS_AT = (1, 2, 5, 10, 20, 50, 100, 200)  # steps after which facts about the loop are written
FACTS_EVERY = 500
SURE_STEPS = 50  # that went as those of a training before, until it is acted on: a warm-up begins near 0
DRAWS_AT = 100  # steps from which on they have what takes time, and what no verdict needs before
FEWEST = 10  # losses of which the last is above the first, before an optimizer that maximises is told
MOST_WITHOUT = 5  # forwards without a step of an optimizer, at the end of a loop


class FxDebugWarning(UserWarning):
    """A warning of fxdebug about the program that it watches."""


_FROM_LOSS = "what the loss function gives back to the model is not finite already: look there"


class Watch:
    """A training loop that is being followed: a context manager, made by :func:`watch`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        every: int,
        folder: Path | None,
        method: str,
        *,
        histograms: bool = False,
        tries: bool = False,
        on: Actions | None = None,
    ) -> None:
        rank = rank_and_size()
        self._rank = rank[0] if rank else None
        self._watcher = Watcher(model, optimizer, every, method, self, histograms=histograms, holds=tries)
        self._folder = folder
        self._every = every
        self._model = type(self._watcher.inner).__name__
        self._file = None if folder is None else TrainingFile(folder, self._model, every, self._rank)
        self._acting = Acting(on, self._model, folder) if on else None
        self._steps: list[StepRecord] = []
        self._signs: list[StepSigns] = []
        self._learning: LearningFacts | None = None
        self._losses: dict[int, tuple[list[float], deque[float]]] = {}  # by place in a step: the first, the last ones
        self._watched: deque[WatchedStep] = deque(maxlen=5 if folder is not None else None)
        self._histograms: deque[StepHistograms] = deque(maxlen=5 if folder is not None else None)
        self._incidents: list[Incident] = []
        self._acted_on: list[Incident] = []
        self._earlier: list[tuple[str, TrainingRecord]] | None = None  # the training before, once it was looked for
        self._notes: list[str] = []
        self._gaps: list[NotLookedAt] = []
        self._trials: list[Trial] = []
        self._unsaved: set[str] = set()  # folders that runs of incidents could not be saved to
        self._failed_at: int | None = None  # the first step that could not be written to the file
        self._is_over = False

    def __repr__(self) -> str:
        found = f"{counted(len(self._steps), 'step')}, {counted(len(self._incidents), 'incident')}"
        return printable(f"<watch of {self._model}: {found}, {self._folder or 'not saved'}>")

    def __enter__(self) -> Watch:
        self._watcher.begin()
        if self._watcher.is_sharded:
            self._note(special_tensors.SHARDED)
        compiled = self._watcher.compiled
        if compiled:
            some = ", ".join(compiled[:3]) + (", …" if len(compiled) > 3 else "")
            self._note(f"compiled by torch.compile: calls inside {some} are not measured in watched steps")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watcher.end()
        try:
            self._take_facts()
            for incident in self._standing(is_over=error is None):
                self._tell(incident)
            self._act(is_over=True)
            facts = self._watcher.facts
            if not facts.steps and facts.forwards >= MOST_WITHOUT and facts.has_changed():
                self._note(
                    f"{_without_step(facts, self._model)}, though its weights changed: watch sees steps of optimizers "
                    "that hold the parameters themselves"
                )
            if facts.steps > 1 and facts.arrived and not facts.ran:
                self._note(
                    f"no forward of {self._model} was seen: its losses are not known, and no step runs again; watch "
                    "what the loop calls: the compiled model, or another method (method=)"
                )
            if isinstance(error, Exception) and not isinstance(error, StopTraining):
                what = f"the training raised {type(error).__name__}: {first_line(error)}"
                lacking = no_memory(error)
                if lacking is not None:
                    note = note_on_memory(self._watcher.inner, self._watcher.optimizer_that_stepped, lacking)
                    error.add_note(note)
                    what += f"; {note.removeprefix('fxdebug: ').removesuffix('.')}"
                self._add(Incident(self._watcher.number, "exception", None, None, what, rank=self._rank))
            self._is_over = True
            is_stop = isinstance(error, StopTraining)
            self._write(TrainingEnd("finished" if error is None else "stopped" if is_stop else "raised"))
            if self._file is not None:
                self._file.close()
        except Exception as ours:  # it must not hide the exception of the training
            self.on_failure(ours)

    def pause(self) -> None:
        """Look at nothing until :meth:`resume`, as between two steps: nothing stays patched meanwhile."""
        self._watcher.pause()

    def resume(self) -> None:
        """Watch the next step. A step that raises pauses again: its trainer tells no callback that it ended."""
        self._watcher.pauses_on_raise = True
        self._watcher.resume()

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The steps so far: loss, norm of the gradients, seconds."""
        return tuple(self._steps)

    @property
    def incidents(self) -> Sequence[Incident]:
        """The steps in which something went wrong, with the first guilty operation."""
        return tuple(self._incidents)

    def verdict(self, tries: float = 0.0) -> Verdict:
        """Return whether it learns so far, and if not, why: ``print`` shows one sentence, ``findings`` has the rest.

        With ``tries``, seconds, what the findings advise is tried for at most so long: on a copy, beside one as it is,
        both judged on batches that neither was trained on. Advice that does not help there is no more than advice.
        Weights, gradients and random numbers are as before. Raises ``UsageError`` without ``watch(…, tries=True)``.
        """
        standing = () if self._is_over else tuple(self._standing(is_over=True))
        record = self._record()
        record = replace(record, incidents=(*record.incidents, *standing))
        found = verdict_of(record)
        return verdict_of(replace(record, trials=self._tried(found, record, tries))) if tries else found

    def _tried(self, found: Verdict, record: TrainingRecord, seconds: float) -> tuple[Trial, ...]:
        held = self._watcher.batches
        if held is None:
            raise UsageError("nothing was held to try on: call fxdebug.watch(…, tries=True)")
        with self._watcher.looking_away():
            for trial in try_changes(
                found.findings, record, self._watcher.inner, self._watcher.last_optimizer, held,
                method=self._watcher.method, seconds=seconds,
            ):  # fmt: skip
                self._trials = [one for one in self._trials if one.rule != trial.rule] + [trial]
                if self._file is not None and self._is_over:
                    self._file.reopen()
                self._write(trial)
        if self._file is not None and self._is_over:
            self._file.close()
        return tuple(self._trials)

    def report(self) -> Report[TrainingRow]:
        """Return the report of the training so far."""
        standing = () if self._is_over else tuple(self._standing(is_over=True))
        if not self._is_over:
            self._take_facts()
        if self._folder is not None and self._failed_at is None:
            return watched_training(self._folder, self._rank, standing)
        record = self._record()
        return Report.of(training_report(replace(record, incidents=(*record.incidents, *standing))))

    def _record(self) -> TrainingRecord:
        if not self._is_over:
            self._take_facts()
        watched, histograms = {one.number: one for one in self._watched}, {one.number: one for one in self._histograms}
        if self._folder is not None:
            written = read_training(self._folder, self._rank)
            if self._failed_at is None:
                return written
            watched = {one.number: one for one in written.watched} | watched
            histograms = {one.number: one for one in written.histograms} | histograms
        return replace(self._in_memory(), watched=tuple(watched.values()), histograms=tuple(histograms.values()))

    def _in_memory(self) -> TrainingRecord:
        """Return what is known without the file, which has more of the watched steps."""
        return TrainingRecord(
            self._model, self._every, tuple(self._steps), tuple(self._watched), tuple(self._incidents),
            tuple(self._notes), self._rank, tuple(self._histograms), tuple(self._gaps), tuple(self._signs),
            self._learning, tuple(self._trials),
        )  # fmt: skip

    def export(self, path: str | os.PathLike[str], to: str | None = None) -> Path:
        """Write every step so far for the program ``to``, such as ``tensorboard``; return the path.

        Raises ``UsageError`` for a form that there is not, ``MissingExtra`` where its package is not installed.
        """
        return registry.export("training", self._record(), Path(path), to=to)

    # What the watcher sees -----------------------------------------------------------------------

    def is_spike(self, loss: float, place: int) -> bool:
        """Is this loss far above those at the same place of the last steps?

        A step may have several losses that mean different things: of the two nets of a GAN, of tasks that go back one
        by one.
        """
        first, recent = self._losses.setdefault(place, ([], deque(maxlen=RECENT)))
        rises = is_spike(list(recent), loss, first)
        recent.append(loss)
        if len(first) < LEAST_STEPS:
            first.append(loss)
        return rises

    def on_step(
        self,
        step: StepRecord,
        signs: StepSigns | None,
        watched: WatchedStep | None,
        histograms: StepHistograms | None,
    ) -> None:
        """Keep a step that has ended, with its signs, and the statistics and histograms that were taken of it."""
        self._steps.append(step)
        self._write(step)
        if signs is not None:
            self._signs.append(signs)
            self._write(signs)
        if self._is_time():
            self._take_facts(draws=len(self._steps) >= DRAWS_AT)
        if watched is not None:
            watched = with_rounded(watched)
            self._watched.append(watched)
            self._write(watched)
        if histograms is not None:
            self._histograms.append(histograms)
            self._write(histograms)
        if self._acting is not None and (self._is_time() or self._incidents != self._acted_on):
            self._act()

    def _is_time(self) -> bool:
        return len(self._steps) in FACTS_AT or len(self._steps) % FACTS_EVERY == 0

    def _act(self, *, is_over: bool = False) -> None:
        """Do what was asked for about what is known by now."""
        if self._acting is None:
            return
        self._acted_on = list(self._incidents)
        record = self._in_memory()
        beside = self._beside(record) if len(record.steps) >= SURE_STEPS else []
        for action, finding in self._acting.due([*verdict_of(record).findings, *beside]):
            if action == DUMP:
                self._dump(finding)
            elif action != STOP:
                self._acting.send(action, finding, self._last_step)
            elif not is_over and self._rank is None:
                self._watcher.stops_with = StopTraining(finding)
            elif not is_over:
                self.on_note("the training was not stopped: it runs on several ranks, and the others would wait")
        for failure in self._acting.failures(waits=is_over):
            self.on_note(failure)

    def _beside(self, record: TrainingRecord) -> list[Finding]:
        """Return what is told of the training beside the one that its folder held before, which is read once."""
        if self._earlier is None:
            found = None if self._folder is None else next(earlier_trainings(self._folder, self._rank), None)
            self._earlier = [] if found is None else [found]
        return [one for name, before in self._earlier for one in as_before(record, before, name)]

    @property
    def _last_step(self) -> int:
        """The number of the last step that was made, as the report and the incidents have it."""
        return max(0, self._watcher.number - 1)

    def _dump(self, finding: Finding) -> None:
        """Keep a run of the last forward, with the weights of now."""
        if self._folder is not None and self._watcher.last_forward is not None and not self._watcher.is_sharded:
            with self._watcher.looking_away():
                self._in_forward(self._folder / f"dump-{self._last_step}", self._watcher.last_forward)
            self._note(f"step {self._last_step}: a run was kept, as {finding.rule} was found")

    def _take_facts(self, *, draws: bool = True) -> None:
        """Keep the facts about the loop as they are now."""
        try:
            self._learning = self._watcher.learning.facts(self._watcher.number, draws=draws)
            self._write(self._learning)
        except Exception as error:
            self.on_failure(error)

    def on_facts(self, facts: LoopFacts) -> None:
        """Tell what holds of the whole loop as soon as it is sure."""
        for incident in self._standing(is_over=False):
            self._tell(incident)

    def _standing(self, *, is_over: bool) -> Iterator[Incident]:
        """Yield what is wrong with the loop itself and was not told yet; before its end only what is sure."""
        facts, told = self._watcher.facts, {incident.trouble for incident in self._incidents}
        number, model = self._watcher.number, self._model
        if facts.unregistered and "not registered" not in told and (facts.steps or is_over):
            what, _ = not_registered(facts.unregistered)
            yield Incident(number, "not registered", None, None, what, facts.unregistered[0].path, rank=self._rank)
        for one in () if "loss input" in told else facts.loss_inputs.values():
            what, advice = wrong_loss_input(one)
            yield Incident(
                number, "loss input", None, None, f"{what}. {advice.rstrip('.')}", op=one.op, rank=self._rank
            )
        if facts.maximizes and "maximizes" not in told and (rise := self._rise()) is not None:
            what = f"{rise}: the optimizer was made with maximize=True, and goes uphill"
            yield Incident(number, "maximizes", None, None, what, op=facts.loss_function, rank=self._rank)
        names, elements = facts.unoptimised
        late = SETTLED if self._watcher.has_optimizer else 1
        if names and not facts.foreign and "not optimised" not in told and facts.steps >= (2 if is_over else late + 1):
            whole = sum(parameter.numel() for parameter in members.parameters_of(self._watcher.inner))
            what, _ = not_optimised(names, elements, whole, "no optimizer that made a step")
            yield Incident(
                number, "not optimised", None, None, what, names[0].rpartition(".")[0], names[0], rank=self._rank
            )
        if told & {"no step", "other optimizer"}:
            return
        is_sure = is_over or facts.steps != 1  # copies of the weights are written back after the first step
        if facts.foreign and is_sure and not facts.has_changed():
            what = other_optimizer(", ".join(facts.foreign)).what
            yield Incident(number, "other optimizer", None, None, what, rank=self._rank)
        elif facts.steps >= (2 if is_over else MANY) and not facts.arrived and "no gradient" not in told:
            if not facts.foreign and not facts.has_changed():
                yield Incident(number, "no gradient", None, None, _without_gradient(facts, model), rank=self._rank)
        elif 0 < facts.skipped < SKIPS:
            return  # a scaler may begin with a factor that is too high
        elif not facts.steps and facts.uses >= (MOST_WITHOUT if is_over else SETTLED) and not facts.has_changed():
            yield Incident(number, "no step", None, None, _without_step(facts, model), rank=self._rank)

    def _rise(self) -> str | None:
        """Say how far the loss has risen; ``None`` where it has not, or steps are few."""
        losses = [step.loss for step in self._steps if step.loss is not None]
        if len(losses) < FEWEST or not losses[-1] > losses[0]:
            return None
        return f"the loss rises from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses)} steps"

    def _tell(self, incident: Incident) -> None:
        self._add(incident)
        _warn(f"fxdebug.watch: {incident.what}")

    def _write(self, entry: Entry) -> None:
        """Append to the file, if there is one; where that fails, say so once, and follow the training in memory."""
        if self._file is None:
            return
        try:
            self._file.add(entry)
        except SaveError as error:
            if self._failed_at is None:
                last = self._steps[-1].number if self._steps else 0
                self._failed_at = entry.step if isinstance(entry, Incident) else last
                self._notes.append(f"step {self._failed_at}: {error}: steps from here on may be missing in it")
                _warn(f"fxdebug.watch: {self._notes[-1]}; the training goes on, and watched.report() has all of them")

    def on_failure(self, error: Exception) -> None:
        """Keep what could not be looked at, once."""
        reason = f"{type(error).__name__}: {first_line(error)}"
        if all(reason != gap.what for gap in self._gaps) and len(self._gaps) < MOST_NOTES:
            self._gaps.append(NotLookedAt(self._watcher.number, reason))
            self._write(self._gaps[-1])

    def on_note(self, what: str) -> None:
        """Note what was not looked at, once."""
        if what not in self._notes and len(self._notes) < MOST_NOTES:
            self._note(what)

    def _note(self, note: str) -> None:
        self._notes.append(note)
        self._write(note)

    def on_trouble(self, trouble: Trouble, loss: float | None, norm: float | None, held: Sequence[HeldForward]) -> None:
        """Run the forwards of a step again under the tracer and keep the first guilty operation."""
        explained = [one for one in self._incidents if one.trouble in NUMBERS]
        is_known = len(explained) >= MOST_INCIDENTS or not self._was_healthy()
        if self._watcher.on_any_rank(is_known) if held else is_known:  # ranks that share weights run a step together
            return
        incident = self._explained(trouble, loss, norm, held)
        if incident.run in self._unsaved:
            incident = replace(incident, run=None)
        self._add(incident)
        place = f" at {incident.node or incident.path}" if incident.path or incident.node else ""
        line = f" ({incident.source})" if incident.source else ""
        again = f"; look again with: fxdebug check {incident.run}" if incident.run else ""
        _warn(f"fxdebug.watch: step {incident.step}: {incident.what}{place}{line}{again}")

    def _was_healthy(self) -> bool:
        """Was there a healthy step since the last incident? What follows from one incident is no other."""
        last = max([incident.step for incident in self._incidents if incident.trouble in NUMBERS], default=-1)
        since = [step for step in self._steps if step.number > last]
        return last < 0 or any(_is_finite(step.loss) and _is_finite(step.norm) for step in since)

    def _add(self, incident: Incident) -> None:
        self._incidents.append(incident)
        self._write(incident)

    def _explained(
        self, trouble: Trouble, loss: float | None, norm: float | None, held: Sequence[HeldForward]
    ) -> Incident:
        number = self._watcher.number
        elsewhere = _elsewhere(trouble, loss, norm, held, is_sharded=self._watcher.is_sharded)
        if trouble == "skipped":
            facts = self._watcher.facts
            elsewhere = f"a GradScaler left out {facts.skipped} steps in a row, and nothing is learned meanwhile (its "
            elsewhere += f"factor fell from {facts.first_scale:g} to {facts.scale:g})"
        if self._rank is not None and trouble == "gradient":
            elsewhere += "; gradients are those of all ranks: look at the incidents of the others"
        incident = Incident(number, trouble, loss, norm, elsewhere, rank=self._rank)
        for position, forward in enumerate(held):
            folder = None if self._folder is None else self._folder / f"step-{number}"
            if folder is not None and len(held) > 1:
                folder /= f"forward-{position}"
            incident = replace(incident, inputs=_shapes(forward), run=None if folder is None else str(folder))
            for look in (partial(self._in_forward, folder), partial(self._in_backward, trouble)):
                found = self._found(look, forward)
                if found is not None:
                    what = f"{elsewhere}; {found.what}" if trouble == "skipped" else found.what
                    incident = replace(
                        incident, what=what, path=found.path, op=found.op, node=found.node, source=found.source
                    )
                if self._watcher.on_any_rank(found is not None):
                    return incident
        if trouble == "skipped" and any(_is_from_loss(forward) for forward in held):
            return replace(incident, what=f"{elsewhere}; {_FROM_LOSS}")
        return incident

    def _found(self, look: Callable[[HeldForward], Finding | None], forward: HeldForward) -> Finding | None:
        """Return what a look finds; after a failure of ours the other ranks must not wait for this one."""
        try:
            return look(forward)
        except Exception as error:
            self.on_failure(error)
            return None

    def _in_forward(self, folder: Path | None, forward: HeldForward) -> Finding | None:
        """Return the first error in the numbers of the forward, which is run again and saved."""
        run = partial(fx_debug, self._watcher.inner, forward.args, forward.kwargs, method=self._watcher.method)
        try:
            with forward.as_it_began():
                trace = run(save=folder)
        except SaveError as error:
            self._unsaved.add(str(folder))
            self.on_failure(error)
            with forward.as_it_began():
                trace = run()
        return next(
            (finding for finding in numerics.check_numerics(trace).findings if finding.severity == "error"), None
        )

    def _in_backward(self, trouble: Trouble, forward: HeldForward) -> Finding | None:
        """Return the finding about the first backward that is not finite, given the gradients of the outputs."""
        if trouble not in ("gradient", "skipped") or not forward.gradients:
            return None
        if _is_from_loss(forward):
            return None
        with forward.as_it_began():
            record = gradient_runs.run_with_gradients(
                self._watcher.inner,
                forward.args,
                forward.kwargs,
                forward.surrogate_loss,
                method=self._watcher.method,
            )
        return next((finding for finding in not_finite(record) if finding.rule == "backward not finite"), None)


def _is_from_loss(forward: HeldForward) -> bool:
    """Are the gradients of a forward's results not finite? They come from the loss function as they are."""
    return not all(bool(gradient.isfinite().all()) for gradient in forward.gradients.values())


def _warn(text: str) -> None:
    """Warn at the line of the program that is running."""
    file, _, line = (UserLines().asking(sys._getframe())() or "<fxdebug>:1").rpartition(":")
    warnings.warn_explicit(text, FxDebugWarning, file, int(line))


def _elsewhere(
    trouble: Trouble, loss: float | None, norm: float | None, held: Sequence[HeldForward], *, is_sharded: bool
) -> str:
    """Say what went wrong where no operation of the model is at fault by itself, or where it was not run again."""
    if not held:
        what = f"the norm of the gradients is {norm}" if trouble == "gradient" else f"the loss is {loss}"
        rises = ", far above those of the steps before" if trouble == "spike" else ""
        why = "all ranks that share the weights would have to run it" if is_sharded else "its forward was not held"
        return f"{what}{rises}; the step was not run again: {why}"
    if trouble == "loss" and loss is not None and math.isfinite(loss):
        return "the loss of another rank is not finite: look at the incidents of the others"
    if trouble == "spike":
        return f"the loss rises to {loss:.4g}, far above those of the steps before; every number in the model is finite"
    if trouble == "loss":
        return f"the loss is {loss}, while every number in the model is finite: look at the loss function"
    outputs = [gradient for forward in held for gradient in forward.gradients.values()]
    if any(not bool(gradient.isfinite().all()) for gradient in outputs):
        return "the gradient of what the model returned is not finite: look at the loss function"
    return f"the norm of all gradients is {norm}, while the model's forward and backward are finite when run again"


def _without_step(facts: LoopFacts, model: str) -> str:
    """Say that no optimizer made a step, and what the loop did instead."""
    ran = f"{model} ran {facts.forwards} times" if facts.forwards else f"parts of {model} ran"
    if not facts.backwards:
        return f"{ran}, and neither backward() of what it returned nor a step of an optimizer followed"
    others = " and ".join(f"{name} ({count})" for name, count in facts.others.items())
    what = f"{ran} and backward() {counted(facts.backwards, 'time')}, and no optimizer with its parameters made a step"
    if facts.schedules:
        what += f", while step() of {facts.scheduler} was called {counted(facts.schedules, 'time')}"
    if facts.skipped:
        return f"{what}: a GradScaler left out {facts.skipped} ({facts.first_scale:g} → {facts.scale:g})"
    return f"{what}; steps of others: {others}" if others else what


def _without_gradient(facts: LoopFacts, model: str) -> str:
    """Say that no parameter had a gradient at any step, and why."""
    if not facts.asks:
        why = "none asks for one (requires_grad is False)"
    elif not facts.ran:
        why = f"{model} was not called with gradients on (no_grad(), inference_mode())"
    elif not facts.went_back:
        why = "no backward() followed what it returned"
    else:
        why = "the loss does not depend on them"
    return f"no gradient reaches any parameter in {counted(facts.steps, 'step')} of an optimizer: {why}"


def _is_finite(number: float | None) -> bool:
    return number is None or math.isfinite(number)


def _shapes(forward: HeldForward) -> tuple[str, ...]:
    tensors = named_tensors((forward.args, forward.kwargs))
    return tuple([f"{'×'.join(map(str, tensor.shape))} {str(tensor.dtype)[6:]}" for _, tensor in tensors])


def watch(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    every: int = 50,
    save: str | os.PathLike[str] | None = "runs/train",
    *,
    method: str = "forward",
    histograms: bool = False,
    tries: bool = False,
    on: Mapping[str, Sequence[str]] | None = None,
) -> Watch:
    """Follow a training loop, and explain the first step in which it goes wrong; a context manager around the loop.

    Every ``every`` steps of the optimizer statistics of all results, gradients, weights and updates are taken. Between
    these steps no module carries a hook: only the model's forward, ``backward`` and the optimizer's ``step`` are looked
    at, and each forward's inputs (up to 64 MiB), random state and buffers are held. When a loss or a gradient is not
    finite, or the loss rises far above the last ones, the step runs again under the tracer before the optimizer changes
    the weights; a warning names the first guilty operation, and the run is saved. Training goes on as without.

    ``optimizer``: only its steps count; without it those of every optimizer that has parameters of the model. ``save``
    is the folder of ``training.jsonl``, which can be read while the training goes on, and of the runs; ``None`` keeps
    the last watched steps in memory. ``method`` is the one that computes a step, where that is not the model's forward
    (``training_step`` in Lightning). ``histograms`` also counts the elements of every weight and gradient of watched
    steps, on the CPU, for ``watched.export("runs/tb", to="tensorboard")``. ``tries`` holds the last 16 batches and, up
    to 256 MiB, the first weights, for ``watched.verdict(tries=60)``. ``on`` maps a severity to what is done about such
    a finding, once for each rule: ``"stop"`` raises ``StopTraining`` from the optimizer's step, ``"dump"`` saves a run
    of the last forward, a URL is posted to. Each step waits for the device twice, to
    read the loss and the gradients' norm.
    Raises ``UsageError`` for an ``every`` below 1, for what is no model and for a folder in the place of an optimizer,
    ``SaveError`` for a folder that cannot be written.

    >>> import torch, fxdebug
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with fxdebug.watch(model, save=None) as watched:
    ...     for step in range(3):
    ...         model(torch.ones(4, 2)).pow(2).mean().backward()
    ...         optimizer.step()
    >>> len(watched.steps), watched.incidents
    (3, ())
    """
    if not isinstance(model, nn.Module):
        got = with_article(type(model).__name__)
        raise UsageError(f"watch needs a torch.nn.Module, not {got}: call it as watch(model, optimizer)")
    if issubclass(type(optimizer), (str, os.PathLike)):
        got = with_article(type(optimizer).__name__)
        raise UsageError(f"the second argument of watch is an optimizer, not {got}: a folder is given as save=…")
    if every < 1:
        raise UsageError(f"every={every}: at least 1")
    folder = None if save is None else Path(save)
    return Watch(
        model,
        optimizer,
        every,
        folder,
        method,
        histograms=histograms,
        tries=tries,
        on=checked_actions(on, saves=folder is not None),
    )


def watched_training(
    folder: str | os.PathLike[str], rank: int | None = None, standing: Sequence[Incident] = ()
) -> Report[TrainingRow]:
    """Return the report of a training that was watched, or that still goes on, from the folder that it was saved to.

    Without ``rank`` a distributed training is reported as the lowest rank saw it, with the incidents of all ranks.
    ``standing`` are incidents that are not in the folder yet.
    Raises ``LoadError`` for a folder without such a training and for a damaged file.
    """
    record, *others = read_ranks(Path(folder), rank)
    record = replace(record, incidents=(*record.incidents, *standing))
    beside = beside_earlier(record, Path(folder), rank)
    return Report.of(training_report(record, others=others, beside=beside))
