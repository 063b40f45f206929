"""Rules about activations: outlier channels, massive activations, dead units, saturation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fxdebug.analyses.activations.measured import BOUNDS, RECTIFIERS, Activation
from fxdebug.data.findings import ADVICE, WARNING, Finding, Severity
from fxdebug.data.measured.units import Units
from fxdebug.data.report import Cell

Chosen = npt.NDArray[np.bool_]
FEWEST_UNITS = 8  # of a layer, for a median over units
DEAD_ADVICE = "A bias that is far too low, a learning rate that was too high, or weights that were not loaded."


@dataclass(frozen=True)
class ActivationLimits:
    """The thresholds of the rules about activations.

    ``outlier``: robust deviations from which an element counts as an outlier. ``large_share``: share of tokens with
    |x| of at least 6 that makes a channel an outlier (LLM.int8, Dettmers 2022), if its rms is also ``times_median``
    that of the median channel. ``massive``: |x|, if it is also ``times_elements`` the median |x| (Sun 2024).
    ``saturated``: share of the elements of a sigmoid or tanh within a hundredth of its bounds. ``samples``: fewer make
    a unit inactive, not dead. ``below``: standard deviations that a rectifier's input stays below 0, for a unit to be
    dead on fewer samples, if it has ``fewest`` tokens: the deviation of a few is small by chance.
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
    fewest: int = 16
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
    if one.function in BOUNDS:
        return units.range <= 1e-6
    whole = float(np.sqrt(np.mean(units.rms**2)))
    return (units.absmax <= 1e-6 * whole) & (units.range <= 1e-6 * whole) if whole else units.zero


def dead_units(one: Activation, limits: ActivationLimits) -> Chosen | None:
    """Return the inactive units that are dead: seen on enough samples, or with inputs far below 0."""
    inactive = inactive_units(one)
    units = one.units
    if inactive is None or units is None:
        return None
    if units.samples >= limits.samples:
        return inactive
    if units.below is None or units.tokens < limits.fewest:
        return np.zeros_like(inactive)
    return inactive & (units.below >= limits.below)


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
        yield _finding(one, "dead unit", WARNING, never_active(one, dead), DEAD_ADVICE)


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
    for one in activations:
        if one.function not in BOUNDS or one.units is None or not one.units.saturated > limits.saturated:
            continue
        what = f"{one.units.saturated:.0%} of its elements lie at a bound of {one.function}, where the gradient is 0"
        advice = "smaller weights before it, or a normalisation"
        yield _finding(one, "saturated", WARNING, what, advice, one.units.saturated, limits.saturated)


def _outlier_channels(activations: Sequence[Activation], limits: ActivationLimits) -> Iterator[Finding]:
    """Yield one finding for each set of channels, at the first call that returns them."""
    groups: dict[tuple[int, ...], list[Activation]] = {}
    for one in activations:
        chosen = outlier_channels(one.units, limits)
        if chosen is not None and chosen.any():
            groups.setdefault(tuple(np.flatnonzero(chosen).tolist()), []).append(one)
    for channels, group in groups.items():
        first = group[0]
        assert first.units is not None
        chosen = np.isin(np.arange(len(first.units.rms)), channels)
        middle = float(np.nanmedian(first.units.rms))
        share = float(np.nanmax(first.units.large[chosen]))
        times = "and the median channel is 0"
        if middle:
            times = f"{float(np.nanmax(first.units.rms[chosen])) / middle:.3g} times the median channel"
        what = f"{_names(chosen, 'channel')} of {len(chosen)}: |x| is at least 6 on {share:.0%} of the tokens, {times}"
        advice = (
            "keep such channels in a wide dtype when quantising (LLM.int8); new ones are a bias or weight gone wrong"
        )
        others = tuple(one.id for one in group[1:])
        yield _finding(first, "outlier channel", WARNING, what, advice, share, limits.large_share, others)


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
    others = tuple(other.id for other, *_ in found[1:])
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
        call=one.id,
        op=one.type,
        what=what,
        measured=measured,
        threshold=threshold,
        advice=f"{advice[:1].upper()}{advice[1:].rstrip('.')}.",
        others=others,
    )
