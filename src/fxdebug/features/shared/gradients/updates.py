"""Findings about what a step changes: weights by too much, by too little or not at all, and what no optimizer has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, TypeAlias

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding, Severity
from fxdebug.data.measures import quantity
from fxdebug.features.shared.records.gradients import GradientRecord, ParameterGradient, Unregistered
from fxdebug.operators.activation_functions import RECTIFIERS, function_of
from fxdebug.operators.dtypes import FLOATS

Trend: TypeAlias = Literal["falling", "rising", "flat"]

LEAST_STEPS = 20  # below, a training is at its beginning: warm-ups start from a rate of 0
FALLEN = 0.1  # of its highest: a rate below was lowered on purpose, by a scheduler
SPENT, SPENT_SHARE = 0.01, 0.3  # of the highest rate, of the steps: a schedule that was over too early
SHARE = 0.1  # of all elements: gradients of 0 behind an activation function are a warning from here on
NAMED = 3


@dataclass(frozen=True, slots=True)
class UpdateLimits:
    """The norms of an update over that of the weight, from which it is too large, and below which it is too small."""

    most: float
    least: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The course of a training up to the step that is judged.

    ``trend`` is that of the loss, ``None`` where there are too few steps. ``rates`` are the highest learning rate of
    each step, and ``numbers`` the steps.
    """

    steps: int
    trend: Trend | None
    numbers: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()

    def fallen(self) -> tuple[int, float, float] | None:
        """The step since which the rate is a tenth of its highest or less, that one, and the rate now."""
        highest = max(self.rates, default=0.0)
        if not highest or self.rates[-1] > FALLEN * highest:
            return None
        since = next((i for i in range(len(self.rates) - 1, -1, -1) if self.rates[i] > FALLEN * highest), -1)
        return self.numbers[since + 1], highest, self.rates[-1]

    @property
    def is_spent(self) -> bool:
        """Was the rate below a hundredth of its highest for 20 steps and 30 % of all? Cosines end so in 6 % of them."""
        low = sum(1 for rate in self.rates if rate < SPENT * max(self.rates))
        return low >= LEAST_STEPS and low > SPENT_SHARE * len(self.rates)

    @property
    def is_warming_up(self) -> bool:
        """Is the rate now the highest so far, after lower ones?"""
        return bool(self.rates) and self.rates[-1] == max(self.rates) > self.rates[0]


def find_updates(
    record: GradientRecord, null: Collection[str], limits: UpdateLimits, progress: Progress | None
) -> Iterator[Finding]:
    """Yield the findings about a step of an optimizer; ``progress`` is that of the training, where there is one."""
    trained = [p for p in record.parameters if p.reach == "trained" and p.optimised is not False]
    if record.foreign:
        yield other_optimizer(record.optimizer or "the optimizer")
    else:
        yield from _not_optimised(record, progress)
    yield from _zero_gradients(record, trained, null)
    moving = [p for p in trained if p.gradient is not None and p.gradient.norm > 0 and p.name not in null]
    still = [p for p in moving if p.update_norm == 0 and p.weight_norm]
    yield from _no_update(record, still, progress)
    ratios = [
        (p.update_norm / p.weight_norm, p)
        for p in moving
        if p.update_norm and p.weight_norm and len(p.shape) > 1
    ]  # fmt: skip
    if ratios:
        yield from _too_large(record, ratios, limits, progress)
        yield from _too_small(record, ratios, limits, progress)


SCHEDULE = "Expected at the end of a schedule; where the training is to go on, look at the scheduler."


def _fell(since: int, highest: float, now: float) -> str:
    return f"the learning rate fell from {highest:.3g} to {now:.3g}, below a tenth since step {since}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _elements(parameters: Sequence[ParameterGradient]) -> int:
    return sum(math.prod(parameter.shape) for parameter in parameters)


def _finding(
    rule: str, severity: Severity, parameters: Sequence[ParameterGradient], what: str, advice: str,
    measured: float | None = None, threshold: float | None = None, path: str | None = None,
) -> Finding:  # fmt: skip
    first = parameters[0]
    place = first.path if path is None else path
    return Finding(
        rule=rule,
        severity=severity,
        path=place,
        call=f"{place}#0",
        op=first.name,
        what=what,
        measured=measured,
        threshold=threshold,
        advice=advice,
        others=tuple([parameter.name for parameter in parameters[1:]]),
    )


# What no optimizer has ---------------------------------------------------------------------------


def other_optimizer(name: str) -> Finding:
    """Return the finding about an optimizer that has none of the model's parameters."""
    return Finding(
        rule="other optimizer",
        severity=ERROR,
        path="",
        call="#0",
        op=name,
        what=f"{name} has none of the model's parameters: its steps change nothing here",
        advice="Make the optimizer after the model is complete, from this model's parameters().",
    )


INDEPENDENT = "Look for detach(), item(), numpy(), argmax, a cast to integers or no_grad() between parameters and loss."


def find_no_gradient(record: GradientRecord) -> Iterator[Finding]:
    """Yield the finding about a loss behind which no parameter has a gradient."""
    asking = [parameter for parameter in record.parameters if parameter.reach != "frozen"]
    if asking and all(parameter.reach != "trained" for parameter in asking) and not record.unregistered:
        what = "no gradient reaches any parameter: the loss does not depend on them"
        stop = record.stops[0] if record.stops else None
        if stop is not None:
            what = f"no gradient reaches any parameter: gradients stop {stop.place}"
        finding = _finding("no gradient", ERROR, asking, what, INDEPENDENT, path="")
        yield finding if stop is None else replace(finding, source=stop.source)


def not_optimised(names: Sequence[str], elements: int, whole: int, optimizers: str) -> tuple[str, str]:
    """Say that parameters get gradients and are in no optimizer, and what to do."""
    share = quantity(100 * elements / max(whole, 1), "%")
    what = f"{_named(names)} ({share} of all elements) get gradients and are in {optimizers}: they do not learn"
    advice = "Give them to an optimizer; where they are not to learn, requires_grad_(False) saves their gradients."
    return what, advice


def _not_optimised(record: GradientRecord, progress: Progress | None) -> Iterator[Finding]:
    """Parameters with a gradient that the one optimizer that was given does not have; a training tells by itself."""
    left = [p for p in record.parameters if p.reach == "trained" and p.optimised is False]
    if left and progress is None:
        names = [parameter.name for parameter in left]
        what, advice = not_optimised(names, _elements(left), _elements(record.parameters), "no group of the optimizer")
        yield _finding("not optimised", WARNING, left, what, advice)


def not_registered(found: Sequence[Unregistered]) -> tuple[str, str]:
    """Say that something learns without being a parameter of the model, and what to do."""
    places = _named([one.path for one in found])
    kinds = " and ".join(dict.fromkeys(one.type or "Tensor" for one in found if not one.path.startswith("<")))
    new = [one for one in found if one.new]
    what = f"{places}{f' ({kinds})' if kinds else ''} {'gets' if len(found) == 1 else 'get'} gradients and "
    what += f"{'is' if len(found) == 1 else 'are'} not registered: "
    what += "parameters(), state_dict() and to() do not see " + ("it" if len(found) == 1 else "them")
    remedies = []
    if new:
        what += "; the forward makes new ones" if len(found) > 1 else "; the forward makes a new one"
        remedies.append("make layers in __init__, not in the forward")
    if any(one.type and not one.new for one in found):
        remedies.append("hold modules as attributes, in nn.ModuleList or in nn.ModuleDict")
    if any(not one.type for one in found):
        remedies.append("make the tensor an nn.Parameter, or put it in an nn.ParameterList")
    advice = "; ".join(remedies)
    return what, f"{advice[:1].upper()}{advice[1:]}. Then make the optimizer."


def find_unregistered(record: GradientRecord) -> Iterator[Finding]:
    """Yield the finding about what learns without being a parameter of the model."""
    if record.unregistered:
        first = record.unregistered[0]
        what, advice = not_registered(record.unregistered)
        yield Finding(
            rule="not registered",
            severity=ERROR,
            path=first.path,
            call=f"{first.path}#0",
            op=first.type or "Tensor",
            what=what,
            advice=advice,
            others=tuple([one.path for one in record.unregistered[1:]]),
        )


# Gradients and updates of exactly 0 --------------------------------------------------------------


def _zero_gradients(
    record: GradientRecord, trained: Sequence[ParameterGradient], null: Collection[str]
) -> Iterator[Finding]:
    """Gradients that are exactly 0, and gradients that are gone when the optimizer steps."""
    zero = [
        p
        for p in trained
        if p.gradient is not None and p.gradient.norm == 0 and p.gradient.stats.count
        and (len(p.shape) > 1 or p.name not in null)
    ]  # fmt: skip
    arrived = {r.path for r in record.results if r.gradient is not None and r.gradient.norm > 0}
    asking = [p for p in record.parameters if p.reach != "frozen"]
    if asking and not any(p.gradient is not None and p.gradient.norm != 0 for p in asking):
        reached = [p for p in asking if p.path in arrived]
        if len(reached) > len(asking) / 2 and record.optimizer is not None:
            what = "gradients reached what the modules returned, and no parameter has one when the optimizer steps"
            advice = "Look for zero_grad() between backward() and step()."
            yield _finding("zero gradient", WARNING, reached, what, advice, path="")
            return
    if not zero:
        return
    whole = len(zero) == len([p for p in trained if p.gradient is not None])
    share = _elements(zero) / max(_elements(record.parameters), 1)
    flat = next((stop for stop in record.flat if {p.name for p in zero} <= set(stop.parameters)), None)
    behind = [one for one in record.cancelled if {p.name for p in zero} <= set(one.parameters)]
    at = behind[-1] if behind else None  # the nearest to the parameters
    silent = next((r for r in record.results if r.silent and function_of(r.type) in RECTIFIERS), None)
    names = _named([p.name for p in zero])
    what = f"no gradient reaches {names} ({quantity(100 * share, '%')} of all elements): it is exactly 0"
    severity: Severity = WARNING if whole else ADVICE
    advice = "Look for what is constant between the parameters and the loss: a bound, a rounding, a factor of 0."
    if not whole:
        advice = "Weights that begin at 0 (LoRA) and parts that no input used look so, too; else look for a factor of 0"
        advice += " between them and the loss."
    if record.loss == 0:
        severity, what = ADVICE, f"{what}; the loss is 0, too"
        advice = "A loss with a margin is 0, without a gradient, where all margins are kept."
    elif flat is not None:
        severity, what = WARNING, f"{what}, as it comes back through {flat.op}, whose derivative is 0 everywhere"
        advice = f"Let the gradient pass as if it were not there: x + ({flat.op}(x) - x).detach()."
    elif at is not None:
        where = f" in {at.path}" if at.path else ""
        senders = f" of {' and '.join(at.senders)}" if len(at.senders) > 1 else ""
        severity, what = WARNING, f"{what}, as the gradients{senders} cancel where the result of {at.op}{where} is used"
        advice = "What is added there is taken away again: detach one of both, if the other is to be learned from."
    elif silent is not None:
        severity = WARNING if whole or share >= SHARE else ADVICE
        what = f"{what}; {silent.path or 'the model'} ({silent.type}) returned only zeros"
        advice = "Where it returns 0 it has no slope: look at the weights and biases before it, and at its inputs."
    finding = _finding("zero gradient", severity, zero, what, advice, 0.0)
    place = flat or (at if record.loss != 0 else None)
    yield finding if place is None else replace(finding, source=place.source)


def _no_update(
    record: GradientRecord, still: Sequence[ParameterGradient], progress: Progress | None
) -> Iterator[Finding]:
    """Parameters that a step leaves exactly as they were although they have gradients."""
    for with_rate in (True, False):
        group = [p for p in still if (p.rate == 0) is with_rate]
        if not group:
            continue
        names = _named([p.name for p in group])
        severity: Severity = ADVICE
        if with_rate:
            what, advice = f"the learning rate of {names} is 0: they do not change", "Expected at the first step of a "
            advice += "warm-up and at the end of a schedule; else look at the scheduler and at the optimizer's groups."
            fallen = None if progress is None else progress.fallen()
            if fallen is not None:
                what = (
                    f"the learning rate of {names} is 0 since step {fallen[0]} (it was {fallen[1]:.3g}): they do not "
                )
                what += "change"
            lasts = progress is not None and (
                progress.is_spent if fallen is not None else len(progress.rates) >= LEAST_STEPS
            )
            severity = WARNING if lasts and len(group) == len(still) else ADVICE
        else:
            narrow = next((p.dtype for p in group if p.dtype in FLOATS and FLOATS[p.dtype].bits < 32), None)
            what = f"a step of {record.optimizer} leaves {names} exactly as they were, although gradients arrive"
            advice = "Look at what the optimizer does with them."
            fallen = None if progress is None else progress.fallen()
            if fallen is not None:
                what = f"{what}; {_fell(*fallen)}"
                advice = SCHEDULE
                severity = WARNING if progress is not None and progress.is_spent else ADVICE
            elif narrow is not None:
                lost = f"a change of less than 1/{round(2 / FLOATS[narrow].eps)} of a number"
                what = f"{what}; {narrow} rounds {lost} away"
                advice = "Keep a float32 copy of the weights: train in float32 under autocast."
                severity = WARNING if 2 * len(group) > len(record.parameters) else ADVICE
        yield _finding("no update", severity, group, what, advice, 0.0)


# Updates too large and too small -----------------------------------------------------------------

_Ratios: TypeAlias = Sequence[tuple[float, ParameterGradient]]


def _changes(
    record: GradientRecord, off: _Ratios, worst: tuple[float, ParameterGradient], ratios: _Ratios, rule: str
) -> str:
    return (
        f"a step of {record.optimizer} changes {worst[1].name} by {quantity(100 * worst[0], '%')} of its norm; "
        f"{len(off)} of {len(ratios)} matrices have an {rule}"
    )


def _too_large(
    record: GradientRecord, ratios: _Ratios, limits: UpdateLimits, progress: Progress | None
) -> Iterator[Finding]:
    """Matrices that a step changes by much; no more than advice where the loss falls nevertheless."""
    off = [pair for pair in ratios if pair[0] > limits.most]
    if not off:
        return
    worst = max(off, key=lambda pair: pair[0])
    what, advice = _changes(record, off, worst, ratios, "update too large"), "Lower the learning rate"
    severity: Severity = WARNING if median([ratio for ratio, _ in ratios]) > limits.most else ADVICE
    if progress is not None and progress.trend == "falling":
        severity, what, advice = ADVICE, f"{what}; the loss falls nevertheless", "A lower learning rate may do better"
    parameters = [worst[1], *(p for _, p in off if p is not worst[1])]
    advice += "; about 0.1 % of the norm is usual."
    yield _finding("update too large", severity, parameters, what, advice, worst[0], limits.most)


def _too_small(
    record: GradientRecord, ratios: _Ratios, limits: UpdateLimits, progress: Progress | None
) -> Iterator[Finding]:
    """Matrices that a step hardly changes: a higher rate is advised only where the loss stays where it is."""
    off = [pair for pair in ratios if pair[0] < limits.least]
    if not off or (progress is not None and (progress.trend == "falling" or progress.is_warming_up)):
        return
    worst = min(off, key=lambda pair: pair[0])
    what = _changes(record, off, worst, ratios, "update too small")
    parameters = [worst[1], *(p for _, p in off if p is not worst[1])]
    severity: Severity = ADVICE
    fallen = None if progress is None else progress.fallen()
    if fallen is not None:
        what = f"{what}; {_fell(*fallen)}"
        advice = SCHEDULE
        severity = WARNING if progress is not None and progress.is_spent else ADVICE
    elif progress is not None and progress.trend == "rising":
        what = f"{what}, and the loss rises"
        advice = "Steps as small as these do not make a loss rise: look at the data, and at what else changes."
    elif progress is not None and progress.trend == "flat":
        what = f"{what}; the loss stayed where it was in {progress.steps} steps"
        advice = "Raise the learning rate; about 0.1 % of the norm is usual."
        severity = WARNING if median([ratio for ratio, _ in ratios]) < limits.least else ADVICE
    else:
        advice = "Where the loss stays where it is, raise the learning rate; about 0.1 % of the norm is usual."
    yield _finding("update too small", severity, parameters, what, advice, worst[0], limits.least)
