"""Findings about the gradients of one step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fxdebug.data.findings import ADVICE, ERROR, SEVERITIES, WARNING, Finding
from fxdebug.data.measures import counted, quantity
from fxdebug.features.shared.gradients.slopes import slopes
from fxdebug.features.shared.gradients.updates import (
    Progress,
    UpdateLimits,
    find_no_gradient,
    find_unregistered,
    find_updates,
)
from fxdebug.features.shared.gradients.wrong_loss_input import find_loss_inputs
from fxdebug.features.shared.records.gradients import (
    BadBackward,
    GradientRecord,
    ParameterGradient,
    Reach,
    Recomputed,
)


@dataclass(frozen=True)
class Limits:
    """Thresholds of the rules.

    ``slope``, ``severe_slope``: decades per layer, for at least ``decades`` over all layers (depth scales of signals:
    Glorot and Bengio 2010, Schoenholz et al. 2017; calibrated on the models of this project's tests).
    ``tiny_share``: elements of all gradients, in percent, below the dtype's smallest normal number (loss scaling:
    Micikevicius et al. 2018). ``least_update``, ``most_update``: the 2-norm of an update over that of the weight (a
    rule of thumb is 1e-3); a warning where it holds for half of the matrices, else advice. One that is too small is a
    warning only in a training whose loss stays where it is. ``null``: a gradient of
    this share of the largest one in its module, in units of the dtype's epsilon, is zero by structure, such as that of
    the bias of keys in attention.
    """

    slope: float = 0.3
    severe_slope: float = 0.6
    decades: float = 3.0
    tiny_share: float = 5.0
    least_update: float = 1e-5
    most_update: float = 1e-1
    null: float = 10.0


STOPS = "it stops "  # before the place at which a gradient stops
NAMED = 3  # parts of a model that a finding names
EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def findings_of(record: GradientRecord, limits: Limits, progress: Progress | None = None) -> tuple[Finding, ...]:
    """Return the findings about a step: errors first, then warnings, then advice.

    ``progress`` is that of the training which the step belongs to.
    """
    null = structurally_zero(record.parameters, limits)
    found = [
        *not_finite(record),
        *find_loss_inputs(record.loss_inputs),
        *find_recomputed(record),
        *find_moved_again(record),
        *_slopes(record, limits),
        *_tiny(record, null, limits),
        *(find_no_gradient(record) if progress is None else ()),  # a training tells by itself
        *find_unregistered(record),
        *find_updates(record, null, UpdateLimits(limits.most_update, limits.least_update), progress),
        *_without_gradient(record),
    ]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def structurally_zero(parameters: Sequence[ParameterGradient], limits: Limits) -> frozenset[str]:
    """Return the names of parameters whose gradients are rounding errors beside those of their module's others.

    A softmax does not change when all its inputs shift, so the bias of the keys of attention has no gradient; nor has
    a bias before a normalisation.
    """
    largest: defaultdict[str, float] = defaultdict(float)
    for parameter in parameters:
        if parameter.gradient is not None and math.isfinite(parameter.gradient.rms):
            largest[parameter.path] = max(largest[parameter.path], parameter.gradient.rms)
    return frozenset(
        parameter.name
        for parameter in parameters
        if parameter.gradient is not None
        and parameter.gradient.rms < limits.null * EPSILONS.get(parameter.dtype, 0.0) * largest[parameter.path]
    )


def not_finite(record: GradientRecord) -> Iterator[Finding]:
    """Yield the findings about a loss and a backward that are not finite."""
    if record.loss is not None and not math.isfinite(record.loss):
        yield Finding(
            rule="loss not finite",
            severity=ERROR,
            path="",
            call="#0",
            op="loss",
            what=f"the loss is {record.loss}: every gradient behind it is without meaning",
            measured=record.loss,
            advice="Trace the forward and ask trace.check() for the operation that made it.",
        )
    bad = record.bad
    if bad is not None:
        kinds = " and ".join([f"{count} {name}" for name, count in (("NaN", bad.nan), ("infinite", bad.inf)) if count])
        why, advice = _why_not_finite(bad)
        yield Finding(
            rule="backward not finite",
            severity=WARNING if bad.held else ERROR,  # what made the NaN in the forward stands first
            path=bad.path,
            call=f"{bad.path}#{bad.number}",
            op=bad.op,
            what=f"the backward of {bad.op} makes {kinds} elements from finite gradients ({bad.node}){why}",
            source=bad.source,
            measured=float(bad.nan + bad.inf),
            threshold=0.0,
            advice=advice,
        )


def _why_not_finite(bad: BadBackward) -> tuple[str, str]:
    """Return why a backward is not finite, as far as known, and what to do."""
    if bad.held:
        return f": the forward gave it {bad.held} NaN", (
            "check(model, inputs) names the operation of the forward that made them: leaving them out of the loss does "
            "not keep them out of the backward."
        )
    if bad.of_zero and bad.nan:
        infinite = "an Inf of the forward" if bad.held_inf else "an infinite derivative"
        return f": the gradients of these elements are 0, and 0 × {infinite} is NaN", (
            "Where what follows leaves them out, choose before it, not behind it, as in "
            "torch.where(ok, x, 1.0).log(); else add an epsilon inside."
        )
    return "", (
        "Keep its input away from the point where the derivative is infinite, for instance by adding an epsilon "
        "inside: torch.where behind it does not help."
    )


def told_recomputed(one: Recomputed) -> str:
    """Return the name and class of a module that was run again."""
    return f"{one.path or 'the model'} ({one.type})"


def find_recomputed(record: GradientRecord) -> Iterator[Finding]:
    """Yield the finding about modules that the backward ran again with other random numbers than the forward had."""
    if not record.recomputed:
        return
    first = record.recomputed[0]
    within = "" if first.within == first.path else f", as {first.within or 'the model'} is computed again,"
    more = f"; so do {len(record.recomputed) - 1} more" if len(record.recomputed) > 1 else ""
    yield Finding(
        rule="recomputed otherwise",
        severity=ERROR,
        path=first.path,
        call=f"{first.path}#0",
        op=first.type,
        what=f"in the backward{within} {told_recomputed(first)} draws other random numbers than in the forward{more}: "
        "the gradients are not those of the loss",
        measured=float(len(record.recomputed)),
        threshold=0.0,
        advice="Restore the state of the generators for the recomputation: torch.utils.checkpoint does so by default "
        "(preserve_rng_state=True).",
        others=tuple([f"{one.path}#0" for one in record.recomputed[1:]]),
    )


def find_moved_again(record: GradientRecord) -> Iterator[Finding]:
    """Yield the finding about batch norms whose running statistics a recomputation moves once more."""
    if not record.moved_again:
        return
    first = record.moved_again[0]
    more = f"; so do {len(record.moved_again) - 1} more" if len(record.moved_again) > 1 else ""
    yield Finding(
        rule="recomputed otherwise",
        severity=ADVICE,
        path=first.path,
        call=f"{first.path}#0",
        op=first.type,
        what=f"in the backward, computed again, {told_recomputed(first)} moves its running statistics once more"
        f"{more}: in evaluation the model returns something else than one that is not computed again",
        measured=float(len(record.moved_again)),
        threshold=0.0,
        advice="The gradients are right. Leave batch norms out of the checkpoint, or give them the momentum "
        "1 - (1 - momentum) ** 0.5, with which two moves are one.",
        others=tuple([f"{one.path}#0" for one in record.moved_again[1:]]),
    )


def _slopes(record: GradientRecord, limits: Limits) -> Iterator[Finding]:
    for slope in slopes(record.results):
        if abs(slope.per_layer) <= limits.slope or abs(slope.decades) < limits.decades:
            continue
        vanishing = slope.per_layer > 0
        first, last = slope.layers[0], slope.layers[-1]
        small, large = (first, last) if vanishing else (last, first)
        yield Finding(
            rule="vanishing" if vanishing else "exploding",
            severity=ERROR if abs(slope.per_layer) > limits.severe_slope else WARNING,
            path=first.path,
            call=f"{first.path}#{first.number}",
            op=first.type,
            what=f"gradients {'shrink' if vanishing else 'grow'} by 10^{abs(slope.per_layer):.2f} in each of "
            f"{len(slope.layers)} layers on their way back: from {_rms(last)} at {last.path} to {_rms(first)} at "
            f"{first.path} (root mean squares)",
            measured=abs(slope.per_layer),
            threshold=limits.slope,
            advice="Use residual connections, a normalisation, or an initialisation that keeps the variance."
            if vanishing
            else "Use a normalisation, a smaller initialisation, or clip gradients.",
            others=tuple([f"{layer.path}#{layer.number}" for layer in (small, large) if layer is not first]),
        )


def _rms(result: object) -> str:
    gradient = getattr(result, "gradient", None)
    return "0" if gradient is None else f"{gradient.rms:.2g}"


def _tiny(record: GradientRecord, null: Collection[str], limits: Limits) -> Iterator[Finding]:
    """Gradients whose elements fall below the smallest normal number: too small for the dtype."""
    small, elements, tiny = [], 0, 0
    for parameter in record.parameters:
        gradient = parameter.gradient
        if gradient is None or parameter.name in null or not gradient.stats.count:
            continue
        elements += gradient.stats.count
        tiny += gradient.tiny
        share = 100 * gradient.tiny / gradient.stats.count
        if share > limits.tiny_share:
            small.append((share, parameter))
    whole = 100 * tiny / max(elements, 1)
    if whole <= limits.tiny_share:
        return
    share, worst = max(small, key=lambda pair: pair[0])
    assert worst.gradient is not None
    yield Finding(
        rule="gradient underflow",
        severity=WARNING,
        path=worst.path,
        call=f"{worst.path}#0",
        op=worst.name,
        what=f"{whole:.0f} % of all elements of gradients are below the smallest normal number of their dtype; of "
        f"{worst.name} ({worst.gradient.dtype}) {share:.0f} %",
        measured=whole,
        threshold=limits.tiny_share,
        unit="%",
        advice="Scale the loss (torch.amp.GradScaler) or keep gradients in a wider dtype.",
        others=tuple([parameter.name for _, parameter in small if parameter is not worst]),
    )


_PASSED: Final[Reach] = "not reached"
_REASONS: Mapping[Reach, tuple[str, str]] = {
    "frozen": ("do not ask for gradients (requires_grad is False)", "If they are to learn, call requires_grad_()."),
    "not called": ("got no gradient: their modules were not called", "Remove the modules, or call them."),
    "not reached": (
        "got no gradient although their modules ran: the loss does not depend on them, or detach(), no_grad() or an "
        "operation without a derivative lies between; so does a reentrant checkpoint whose inputs ask for none",
        "Look for the place with trace.upstream, or leave them out of the optimizer.",
    ),
}


_CHECKPOINTED = (
    "got no gradient: they ran in a reentrant checkpoint none of whose inputs asks for gradients",
    "Checkpoint with use_reentrant=False, or let its input ask for gradients (requires_grad_()).",
)
_STOPPED = "If they are to learn, take detach(), .data or no_grad() away there; else requires_grad_(False) says so."
_ROUTED = "Experts that a router did not choose are no fault; others remove, or call."


def _without_gradient(record: GradientRecord) -> Iterator[Finding]:
    """Parts of the model that do not learn, each under the largest module all of whose parameters share the reason."""
    if all(parameter.gradient is None for parameter in record.parameters):
        return
    stop_of = {name: stop for stop in reversed(record.stops) for name in stop.parameters}
    causes = [*((_PASSED, stop) for stop in record.stops), *((reach, None) for reach in _REASONS)]
    for reach, stop in causes:
        reason, advice = _REASONS[reach]
        of_cause = {p.name for p in record.parameters if p.reach == reach and stop_of.get(p.name) is stop}
        parts = _largest_parts(record.parameters, of_cause)
        together = [([*parts], [parameter for part in parts.values() for parameter in part])]
        for paths, group in together if stop is not None and parts else _alike(parts):
            path = paths[0]
            elements = sum(math.prod(parameter.shape) for parameter in group)
            whole = sum(math.prod(parameter.shape) for parameter in record.parameters)
            count = counted(len(group), "parameter")
            named = ", ".join(paths[:NAMED]) + (f", … {len(paths)} in all" if len(paths) > NAMED else "")
            share = 100 * elements / max(whole, 1)
            routed = reach == "not called" and _have_others(paths, record.parameters)
            cut = reach == "not reached" and all(parameter.path in record.checkpointed for parameter in group)
            why, then = _CHECKPOINTED if cut else (reason, _ROUTED if routed else advice)
            if stop is not None and not cut:
                why, then = f"got no gradient although their modules ran: {STOPS}{stop.place}", _STOPPED
            yield Finding(
                rule=reach,
                severity=WARNING if cut else ADVICE,  # a teacher's parameters may get none on purpose
                path=path,
                call=f"{path}#0",
                op=group[0].name,
                what=f"{count} of {named or 'the model'} ({quantity(share, '%')} of all elements) {why}",
                measured=share,
                threshold=0.0,
                unit="%",
                source=None if stop is None or cut else stop.source,
                advice=then,
                others=tuple([parameter.name for parameter in group[1:]]),
            )


def _alike(
    parts: Mapping[str, list[ParameterGradient]],
) -> Iterator[tuple[list[str], list[ParameterGradient]]]:
    """Yield parts of a model, those together whose paths differ in numbers alone: layers, experts."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for path in parts:
        groups[_pattern(path)].append(path)
    for paths in groups.values():
        yield paths, [parameter for path in paths for parameter in parts[path]]


def _have_others(paths: Sequence[str], parameters: Sequence[ParameterGradient]) -> bool:
    """Do numbered modules stand beside others of their list which have a gradient?"""
    lists = {path.rpartition(".")[0] for path in paths if path.rpartition(".")[2].isdigit()}
    return any(p.reach == "trained" and p.path.startswith(tuple([f"{one}." for one in lists])) for p in parameters)


def _pattern(path: str) -> str:
    return ".".join("#" if part.isdigit() else part for part in path.split("."))


def _largest_parts(
    parameters: Sequence[ParameterGradient], chosen: Collection[str]
) -> dict[str, list[ParameterGradient]]:
    """Return the parameters of these names by the path of the largest module that has no others."""
    mixed: set[str] = set()
    for parameter in parameters:
        if parameter.name not in chosen:
            parts = parameter.path.split(".")
            mixed.update(".".join(parts[:length]) for length in range(len(parts) + 1))
    groups: defaultdict[str, list[ParameterGradient]] = defaultdict(list)
    for parameter in parameters:
        if parameter.name in chosen:
            parts = parameter.path.split(".")
            prefixes = (".".join(parts[:length]) for length in range(len(parts) + 1))
            groups[next((path for path in prefixes if path not in mixed), parameter.path)].append(parameter)
    return dict(groups)
