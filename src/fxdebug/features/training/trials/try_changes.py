"""Try what a verdict advises: on a copy, beside a control as it is, on batches that neither is trained on."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fxdebug.capture.probe import RngSnapshot, deep_copy, members, named_tensors, untracked
from fxdebug.data.findings import Finding
from fxdebug.errors import first_line
from fxdebug.features.shared.records.learning import Trial
from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.recorder.gradient_norm import number_of
from fxdebug.features.training.recorder.held_batches import HeldBatch, HeldBatches
from fxdebug.features.training.trials.changes import Change, changes_for, floating, standardising

STEPS = 40
FEWEST_JUDGED = 3  # batches: a deviation of fewer means nothing
SURE = 3.0  # standard errors
MUCH = 0.02  # of the control's loss
MOST_TRIED = 3  # rules of one verdict

Clock = Callable[[], float]


class CannotTry(Exception):
    """Nothing can be tried on this model; the text says why."""


@dataclass
class _Arms:
    """The state that both arms begin with."""

    model: nn.Module
    optimizer: Optimizer
    held: HeldBatches
    method: str
    until: float
    clock: Clock

    @property
    def trained(self) -> list[HeldBatch]:
        batches = list(self.held.batches)
        return batches[: len(batches) - self.judged_count]

    @property
    def judged(self) -> list[HeldBatch]:
        return list(self.held.batches)[len(self.trained) :]

    @property
    def judged_count(self) -> int:
        return max(FEWEST_JUDGED, len(self.held.batches) * 3 // 8)


def try_changes(
    findings: Sequence[Finding],
    record: TrainingRecord,
    model: nn.Module,
    optimizer: Optimizer | None,
    held: HeldBatches,
    *,
    method: str = "forward",
    seconds: float = 60.0,
    clock: Clock = time.perf_counter,
) -> Iterator[Trial]:
    """Yield what the changes do that findings advise, at most for so many ``seconds``; the gravest come first.

    The model, its optimizer and all random numbers are as before.
    """
    asked = [(one, changes) for one in findings if (changes := changes_for(one, record))][:MOST_TRIED]
    if not asked:
        return
    why = _why_not(model, optimizer, held)
    if why or optimizer is None:
        yield from (Trial(one.rule, changes[0].text, "not tried", why=why) for one, changes in asked)
        return
    arms = _Arms(model, optimizer, held, method, clock() + seconds, clock)
    random = RngSnapshot()
    try:
        for one, changes in asked:
            yield _tried(one.rule, changes, arms)
    finally:
        random.restore()


def _why_not(model: nn.Module, optimizer: Optimizer | None, held: HeldBatches) -> str:
    if optimizer is None:
        return "no optimizer was seen"
    if len(held.batches) < FEWEST_JUDGED + 2:
        return held.why_not if not held.batches else f"only {len(held.batches)} batches were held"
    if any(type(p).__name__ == "DTensor" for p in members.parameters_of(model)):
        return "the weights are distributed over ranks"
    return ""


def _tried(rule: str, changes: Sequence[Change], arms: _Arms) -> Trial:
    """Return what the best of several changes does; those that no time was left for are left out."""
    found: list[Trial] = []
    controls: dict[tuple[bool, float | None], list[float]] = {}
    why = ""
    for change in changes:
        if change.from_first and arms.held.first is None:
            why = "the weights are too large to hold those of the beginning"
            break
        try:
            as_it_is = change.from_first, change.clips[0]
            if as_it_is not in controls:
                controls[as_it_is] = _run(change.control, arms)
            found.append(_judged(rule, change, controls[as_it_is], _run(change, arms)))
        except CannotTry as error:
            why = str(error)
            break
        except Exception as error:  # of the model, on a copy
            why = f"{type(error).__name__}: {first_line(error)}"
            break
    ends = [one for one in found if one.changed is not None and math.isfinite(one.changed)]
    best = min(ends, key=lambda one: one.changed or 0.0, default=found[0] if found else None)
    return best or Trial(rule, changes[0].text, "not tried", why=why)


def _judged(rule: str, change: Change, control: Sequence[float], changed: Sequence[float]) -> Trial:
    """Return whether a change is better, by more than three standard errors of paired differences and by 2 %."""
    before, after = fmean(control), fmean(changed)
    if not math.isfinite(before) or not math.isfinite(after):
        is_better = math.isfinite(after)
    else:
        gains = [a - b for a, b in zip(control, changed)]
        error = stdev(gains) / math.sqrt(len(gains))
        is_better = fmean(gains) > SURE * error and fmean(gains) > MUCH * abs(before)
    return Trial(rule, change.text, "yes" if is_better else "no", before, after, STEPS, len(control))


def _run(change: Change, arms: _Arms) -> list[float]:
    """Train a copy with a change for some steps; return its loss on each batch that was kept back."""
    torch.manual_seed(0)
    model, optimizer = _copies(change, arms)
    inputs: Callable[[Tensor], Tensor] = lambda x: x  # noqa: E731
    if change.standardises:
        given = [t for one in arms.trained for _, t in named_tensors((one.args, one.kwargs)) if t.is_floating_point()]
        inputs = standardising(given)

    def loss_on(batch: HeldBatch, *, mean: bool) -> Tensor:
        args, kwargs = floating(deep_copy((batch.args, batch.kwargs)), inputs)
        output = (model if arms.method == "forward" else getattr(model, arms.method))(*args, **kwargs)
        return batch.mean_loss(output) if mean else batch.loss(output)

    trained = [p for group in optimizer.param_groups for p in group["params"]]
    rates = [group["lr"] for group in optimizer.param_groups]
    with untracked(), torch.enable_grad():
        for step in range(STEPS):
            if arms.clock() > arms.until:
                raise CannotTry("no time was left")
            optimizer.zero_grad()
            loss_on(arms.trained[step % len(arms.trained)], mean=False).backward()
            if change.clips[1] is not None:
                nn.utils.clip_grad_norm_(trained, change.clips[1])
            for group, rate in zip(optimizer.param_groups, rates):
                if step <= change.warms:
                    group["lr"] = rate * min(1.0, (step + 1) / max(1, change.warms))
            optimizer.step()
    with untracked(), torch.no_grad():
        return [number_of(loss_on(batch, mean=True)) for batch in arms.judged]


def _copies(change: Change, arms: _Arms) -> tuple[nn.Module, Optimizer]:
    """Return a copy of the model, and an optimizer of the same class and settings, without a state."""
    try:
        with untracked():
            model = copy.deepcopy(arms.model)
    except Exception as error:
        raise CannotTry(f"the model cannot be copied: {type(error).__name__}: {first_line(error)}") from error
    if change.from_first and arms.held.first is not None:
        with untracked(), torch.no_grad():
            model.load_state_dict(arms.held.first)
    own, twins = members.parameters_of(arms.model), members.parameters_of(model)
    place = {id(p): twin for p, twin in zip(own, twins)}
    change.model(model)
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        | {"params": [place[id(p)] for p in group["params"] if id(p) in place]}
        for group in arms.optimizer.param_groups
    ]
    known = {id(p) for group in groups for p in group["params"]}
    groups[0]["params"] += [p for p in twins if p.requires_grad and id(p) not in known and _was_frozen(p, own, twins)]
    change.groups(groups)
    for parameter in twins:
        parameter.grad = None
    try:
        accepted = {key: arms.optimizer.defaults[key] for key in ("lr",) if key in arms.optimizer.defaults}
        return model, type(arms.optimizer)(groups, **accepted)
    except Exception as error:
        name = type(arms.optimizer).__name__
        raise CannotTry(f"another {name} cannot be made: {type(error).__name__}: {first_line(error)}") from error


def _was_frozen(twin: Tensor, own: Sequence[Tensor], twins: Sequence[Tensor]) -> bool:
    return any(one is twin and not p.requires_grad for p, one in zip(own, twins))
