"""Rules about activations: outlier channels, massive activations, dead units, saturation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fxdebug.data.calls import Note
from fxdebug.data.findings import ADVICE, WARNING, Finding, Severity
from fxdebug.data.report import Cell
from fxdebug.features.shared.records.units import Units
from fxdebug.features.shared.units.measured import Activation
from fxdebug.operators.activation_functions import BOUNDS, RECTIFIERS

Chosen = npt.NDArray[np.bool_]
FEWEST_TOKENS = 16  # the deviation of fewer is small by chance
FEWEST_UNITS = 8  # of a layer, for a median over units
MOST_DEAD = 0.9  # of a layer: little is left of it
DEAD_ADVICE = "A bias that is far too low, a learning rate that was too high, or weights that were not loaded."


@dataclass(frozen=True)
class ActivationLimits:
    """The thresholds of the rules about activations.

    ``outlier``: robust deviations from which an element counts as an outlier. ``large_share``: share of tokens with
    |x| of at least 6 that makes a channel an outlier (LLM.int8, Dettmers 2022), if its rms is also ``times_median``
    that of the median channel. ``massive``: |x|, if it is also ``times_elements`` the median |x| (Sun 2024).
    ``saturated``: share of the elements of a sigmoid or tanh within a hundredth of its bounds. ``samples``: fewer make
    a unit inactive, not dead. ``below``: standard deviations that a rectifier's input stays below 0, for a unit to be
    dead on fewer samples, from the ``fewest`` on: a unit that was active on none of 128 samples is active on less than
    2.3 % of all (rule of three, 95 % sure), while of 32 samples one that is active on 9 % may show none.
    ``dormant``: mean |x| relative to that of the layer (Sokar 2023).
    """

    outlier: float = 10.0
    large_share: float = 0.06
    times_median: float = 10.0
    massive: float = 100.0
    times_elements: float = 1000.0
    saturated: float = 0.5
    samples: int = 1000
    below: float = 6.0
    fewest: int = 128
    dormant: float = 0.025

    def settings(self) -> dict[str, Cell]:
        """Return the thresholds by name, for the report."""
        return {"outlier": self.outlier, "dormant": self.dormant, "samples": self.samples}


def inactive_units(one: Activation) -> Chosen | None:
    """Return the units of an activation function that did nothing for any token; ``None`` for other calls.

    For a rectifier: exactly 0 throughout (Lu 2019). For functions that are never exactly 0: at most a millionth of the
    layer's rms.
    """
    units = one.units
    if not one.function or units is None:
        return None
    if one.function in RECTIFIERS:
        return units.zero
    if one.function in BOUNDS:  # an answer that is always no is no unit that does nothing
        return units.range <= 1e-6 if one.read_by_weights else np.zeros_like(units.zero)
    whole = float(np.sqrt(np.mean(units.rms**2)))
    return (units.absmax <= 1e-6 * whole) & (units.range <= 1e-6 * whole) if whole else units.zero


def dead_units(one: Activation, limits: ActivationLimits) -> Chosen | None:
    """Return the inactive units that are dead: seen on enough samples, or with inputs far below 0.

    On fewer than 128 samples only those whose bias lies far below the others, too: then the bias tells.
    """
    inactive = inactive_units(one)
    units = one.units
    if inactive is None or units is None:
        return None
    if units.samples >= limits.samples:
        return inactive
    if units.below is None or units.tokens < FEWEST_TOKENS:
        return np.zeros_like(inactive)
    far = inactive & (units.below >= limits.below)
    return far if units.samples >= limits.fewest else far & _odd(one, far)


def dormant_units(one: Activation, limits: ActivationLimits) -> Chosen | None:
    """Return the units whose mean size is at most a fortieth of the layer's, the inactive ones among them."""
    units = one.units
    if not one.function or units is None or one.function in BOUNDS:
        return None
    return units.mean_abs <= limits.dormant * max(float(units.mean_abs.mean()), 1e-300)


def outlier_channels(units: Units | None, limits: ActivationLimits) -> Chosen | None:
    """Return the channels that are large on enough tokens, and far larger than the median channel."""
    if units is None or len(units.rms) < FEWEST_UNITS:
        return None
    median = float(np.median(units.rms))
    return (units.large >= limits.large_share) & (units.rms >= limits.times_median * max(median, 1e-300))


def find_activations(activations: Sequence[Activation], limits: ActivationLimits) -> tuple[Finding, ...]:
    """Return the findings, warnings first."""
    found = [
        *_dead(activations, limits),
        *_saturated(activations, limits),
        *_outlier_channels(activations, limits),
        *_massive(activations, limits),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != WARNING))


def _dead(activations: Iterable[Activation], limits: ActivationLimits) -> Iterator[Finding]:
    for one in activations:
        dead = dead_units(one, limits)
        if dead is None or not dead.any() or one.units is None:
            continue
        yield _finding(one, "dead unit", dead_severity(one, dead), never_active(one, dead), dead_advice(one, dead))


def dead_severity(one: Activation, dead: Chosen) -> Severity:
    """Return a warning where a bias is far from the others of its layer, or most of a layer is dead; else advice.

    In trained nets some units are dead, and the net does without them.
    """
    return WARNING if _has_odd(one, dead) or dead.mean() >= MOST_DEAD else ADVICE


def dead_advice(one: Activation, dead: Chosen) -> str:
    """Say what to look for."""
    if _has_odd(one, dead):
        return DEAD_ADVICE
    return "Trained nets have such units and do without them; many of them come from a learning rate that was too high."


def _has_odd(one: Activation, dead: Chosen) -> bool:
    return bool((_odd(one, dead) & dead).any())


def _odd(one: Activation, like: Chosen) -> Chosen:
    return one.odd if one.odd is not None and one.odd.shape == like.shape else np.zeros_like(like)


def never_active(one: Activation, dead: Chosen) -> str:
    """Say which units of an activation function are never active, and how far from it they are."""
    assert one.units is not None
    what = f"{_names(dead, 'unit')} of {len(dead)} {'is' if dead.sum() == 1 else 'are'} never active, on "
    what += f"{one.units.tokens} tokens"
    if one.units.below is None:
        return what
    below = float(one.units.below[dead].min())
    if not math.isfinite(below):  # inputs that are the same for all tokens have no deviation
        return f"{what}; {'its input is' if dead.sum() == 1 else 'their inputs are'} below 0 and never change"
    whose = "its input lies" if dead.sum() == 1 else "their inputs lie at least"
    return f"{what}; {whose} {below:.3g} standard deviations below 0"


def _saturated(activations: Iterable[Activation], limits: ActivationLimits) -> Iterator[Finding]:
    """Yield the activation functions at their bounds: a warning where weights read the result, or nothing was learned.

    A gate that multiplies something, and the answer of a model, may be sure of themselves once they were trained.
    """
    for one in activations:
        if one.function not in BOUNDS or one.units is None or not one.units.saturated > limits.saturated:
            continue
        what = f"{one.units.saturated:.0%} of its elements lie at a bound of {one.function}, where the gradient is 0"
        is_wrong = one.read_by_weights or one.untrained
        if is_wrong:
            advice = "smaller weights before it, or a normalisation"
        else:
            advice = (
                "gates and answers may be sure of themselves; else take smaller weights before it, or a normalisation"
            )
        severity: Severity = WARNING if is_wrong else ADVICE
        yield _finding(one, "saturated", severity, what, advice, one.units.saturated, limits.saturated)


def _outlier_channels(activations: Sequence[Activation], limits: ActivationLimits) -> Iterator[Finding]:
    """Yield one finding, at the call whose channels are largest beside the others: trained models have many."""
    found = []
    for one in activations:
        chosen = outlier_channels(one.units, limits)
        if chosen is not None and chosen.any() and one.units is not None:
            middle, most = float(np.nanmedian(one.units.rms)), float(np.nanmax(one.units.rms[chosen]))
            found.append((most / middle if middle else math.inf, one, chosen))
    if not found:
        return
    ratio, first, chosen = max(found, key=lambda each: each[0])
    assert first.units is not None
    share = float(np.nanmax(first.units.large[chosen]))
    times = f"{ratio:.3g} times the median channel" if math.isfinite(ratio) else "and the median channel is 0"
    what = f"{_names(chosen, 'channel')} of {len(chosen)}: |x| is at least 6 on {share:.0%} of the tokens, {times}"
    advice = (
        "usual in trained transformers: keep such channels in a wide dtype when quantising (LLM.int8); in a new model "
        "a bias or weight gone wrong"
    )
    others = tuple(one.call for _, one, _ in found if one is not first)
    yield _finding(first, "outlier channel", ADVICE, what, advice, share, limits.large_share, others)


def _massive(activations: Sequence[Activation], limits: ActivationLimits) -> Iterator[Finding]:
    found = []
    for one in activations:
        quantiles, largest = one.distribution.quantiles, one.distribution.absmax
        if one.units is None or largest is None or largest <= limits.massive or not quantiles:
            continue
        typical = float(np.median(one.units.mean_abs))
        if typical and largest > limits.times_elements * typical:
            found.append((one, largest, largest / typical))
    if not found:
        return
    one, largest, ratio = found[0]
    assert one.units is not None
    channel = int(one.units.absmax.argmax())
    what = f"the largest |x| is {largest:.4g}, in channel {channel}: {ratio:.3g} times the typical one"
    advice = "usual in large trained decoders (Sun 2024); float16 ends at 65504"
    others = tuple(other.call for other, *_ in found[1:])
    yield _finding(one, "massive activation", ADVICE, what, advice, largest, limits.massive, others)


_SHOWN = 8


def _names(chosen: Chosen, name: str) -> str:
    """Return the numbers of some units as text.

    >>> _names(np.array([True, False, True]), "unit"), _names(np.array([False, True]), "unit")
    ('units [0, 2]', 'unit [1]')
    """
    numbers = np.flatnonzero(chosen).tolist()
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (f", … {len(numbers)} in all" if len(numbers) > _SHOWN else "")
    return f"{name}{'' if len(numbers) == 1 else 's'} [{shown}]"


def _finding(
    one: Activation,
    rule: str,
    severity: Severity,
    what: str,
    advice: str,
    measured: float | None = None,
    threshold: float | None = None,
    others: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        path=one.path,
        call=one.call,
        op=one.type,
        what=what,
        measured=measured,
        threshold=threshold,
        advice=f"{advice[:1].upper()}{advice[1:].rstrip('.')}.",
        others=others,
    )


def too_few(samples: int, limits: ActivationLimits) -> Note:
    """Return the note that units were seen too seldom to be called dead."""
    return Note(f"units that are never active on {samples} samples are called inactive; dead from {limits.samples} on")
