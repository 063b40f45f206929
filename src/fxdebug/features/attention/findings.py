"""Rules about attention: sinks, heads without use, padding and later tokens that are seen."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding, Severity
from fxdebug.data.report import Cell
from fxdebug.features.attention.heads import FEWEST_KEYS, HeadNumbers
from fxdebug.features.attention.maps import AttentionMap

SAME = 1e-5  # difference of two weights over their mean: what rounding in float32 makes of equal ones


@dataclass(frozen=True)
class AttentionLimits:
    """The thresholds of the rules about attention.

    ``sink``: share of the first token, in the mean over queries (Xiao 2024), that must also be ``times_even`` as much
    as even weights give it. ``even``: 1 minus the normalised entropy of a head that looks at nothing. ``unused``: what
    a head adds to the output, relative to the median of its layer. ``leak``: sum of weights on tokens that must not
    be seen.
    """

    sink: float = 0.3
    times_even: float = 3.0
    even: float = 1e-6
    unused: float = 1e-5
    leak: float = 1e-6

    def settings(self) -> dict[str, Cell]:
        """Return the thresholds by name, for the report."""
        return {"sink": self.sink, "leak": self.leak, "even": self.even, "unused": self.unused}


@dataclass(frozen=True)
class Measured:
    """One module's attention with the numbers of its heads."""

    map: AttentionMap
    numbers: HeadNumbers


def find_attention(
    measured: Sequence[Measured], limits: AttentionLimits, causal: bool | None = None
) -> tuple[Finding, ...]:
    """Return the findings, errors first; one for each module and rule, with its heads.

    ``causal``: must no query see later tokens? ``None``: where some layers of one kind let it see none and others
    some, these others are found.
    """
    return (
        *_added(measured),
        *_padding(measured, limits),
        *_future(measured, limits, causal),
        *_blind(measured),
        *_unused(measured, limits),
        *_sinks(measured, limits),
    )


def _added(measured: Iterable[Measured]) -> Iterator[Finding]:
    """Masks of zeros and ones that are floats: they are added to the scores, and hide nothing."""
    for one in measured:
        if one.map.added:
            takes_part = "True where a key takes part" if one.map.op == "scaled_dot_product_attention" else "True hides"
            what = f"{one.map.added} is of floats, 0 and 1: floats are added to the scores, so it hides no key"
            advice = f"give a boolean mask ({takes_part}), or floats of 0 and -inf"
            yield _finding(one, "mask added", WARNING, what, advice)


def _padding(measured: Iterable[Measured], limits: AttentionLimits) -> Iterator[Finding]:
    for one in measured:
        leaks = one.numbers.padding
        if leaks is None or not (leaks > limits.leak).any():
            continue
        what = (
            f"queries give up to {np.nanmax(leaks):.1%} of their weight to padding, in {_heads(leaks > limits.leak)}: "
            f"the mask lets it through"
        )
        advice = "give the attention a mask that hides the padding: -inf or the lowest number, or False"
        yield _finding(one, "padding seen", ERROR, what, advice, float(np.nanmax(leaks)), limits.leak)


def _future(measured: Sequence[Measured], limits: AttentionLimits, causal: bool | None) -> Iterator[Finding]:
    groups: dict[str, list[Measured]] = {}
    for one in measured:
        if one.numbers.queries > 2 and not np.isnan(one.numbers.future).all():
            groups.setdefault(_NUMBER.sub("#", one.map.path), []).append(one)
    for group in groups.values():
        leaking = [one for one in group if (one.numbers.future > limits.leak).any()]
        if causal is False or (causal is None and len(leaking) == len(group)):
            continue
        for one in leaking:
            future = one.numbers.future
            others = "" if causal else f"; {len(group) - len(leaking)} other layers of its kind see none"
            what = (
                f"queries give up to {np.nanmax(future):.1%} of their weight to later tokens, in "
                f"{_heads(future > limits.leak)}{others}"
            )
            advice = "mask later tokens, or say causal=False where this is meant"
            yield _finding(one, "future seen", ERROR, what, advice, float(np.nanmax(future)), limits.leak)


def _blind(measured: Sequence[Measured]) -> Iterator[Finding]:
    """Queries that see no key: torch returns zeros for them, a softmax NaN or even weights on all that is hidden."""
    blind = [one for one in measured if one.numbers.blind]
    if blind:
        first, count = blind[0], blind[0].numbers.blind
        what = (
            f"the mask lets {count} {'query' if count == 1 else 'queries'} see no key: "
            "they get zeros, or the mean of what is hidden"
        )
        advice = "look whether True hides or takes part, and whether the mask has a row for each query"
        others = tuple([one.map.call for one in blind[1:]])
        yield _finding(first, "no key seen", WARNING, what, advice, float(count), 0.0, others)


def _unused(measured: Sequence[Measured], limits: AttentionLimits) -> Iterator[Finding]:
    least_even = [1 - entropy for one in measured for entropy in one.numbers.entropy.tolist()]
    some_look = max(least_even, default=0.0) > 100 * limits.even
    for one in measured:
        norms = one.map.norms
        if norms is not None and len(norms) > 1 and 0 < (middle := float(np.median(norms))) < math.inf:
            dead = np.array(norms) <= limits.unused * middle
            if dead.any():
                where = "its output projection's result" if one.map.projected else "its output"
                what = f"{_heads(dead)} {_add(dead)} nothing to {where}: the others add {middle:.3g}"
                worst = float(min(norms) / middle)
                advice = "a head that was pruned, or weights that were not loaded"
                yield _finding(one, "unused head", WARNING, what, advice, worst, limits.unused)
        even = (1 - one.numbers.entropy <= limits.even) & (one.numbers.spread <= SAME)
        if one.map.narrow:  # rounding makes near weights equal: eager attention in bfloat16
            continue
        if some_look and even.any() and one.numbers.keys >= FEWEST_KEYS and _varies(even):
            what = f"{_heads(even)} {'gives' if even.sum() == 1 else 'give'} every visible key the same weight"
            distance = float(np.nanmin(1 - one.numbers.entropy))
            advice = "query or key of the head may be zero: weights that were not loaded, or a scale of 0"
            yield _finding(one, "uniform head", WARNING, what, advice, distance, limits.even)


def _varies(even: np.ndarray) -> bool:
    """Do other heads of the layer look at something? If none does, its keys may all be alike; a lone head tells."""
    return len(even) == 1 or not even.all()


def _add(heads: np.ndarray) -> str:
    return "adds" if heads.sum() == 1 else "add"


def _sinks(measured: Sequence[Measured], limits: AttentionLimits) -> Iterator[Finding]:
    sinks = []
    for one in measured:
        heads = (one.numbers.sink > limits.sink) & (one.numbers.sink > limits.times_even * one.numbers.even)
        if heads.any() and not one.map.is_cross:
            sinks.append((float(np.nanmax(one.numbers.sink)), one, heads))
    if not sinks:
        return
    share, worst, heads = max(sinks, key=lambda sink: sink[0])
    count = sum(int(heads.sum()) for *_, heads in sinks)
    everywhere = f"; {count} heads in {len(sinks)} layers do" if len(sinks) > 1 else ""
    what = f"{_heads(heads)} {'gives' if heads.sum() == 1 else 'give'} up to {share:.0%} to the first token{everywhere}"
    advice = "usual in trained decoders; keep the first token in a cache with a window, and in quantisation"
    others = tuple(one.map.call for _, one, _ in sinks if one is not worst)
    yield _finding(worst, "attention sink", ADVICE, what, advice, share, limits.sink, others)


_NUMBER = re.compile(r"\d+")
_SHOWN = 8


def _heads(chosen: np.ndarray) -> str:
    """Return the numbers of some heads as text.

    >>> _heads(np.array([True, False, True])), _heads(np.array([True, True])), _heads(np.array([False, True]))
    ('heads 0, 2', 'all 2 heads', 'head 1')
    """
    numbers = np.flatnonzero(chosen).tolist()
    if len(numbers) == len(chosen) > 1:
        return f"all {len(numbers)} heads"
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
    return f"head{'' if len(numbers) == 1 else 's'} {shown}"


def _finding(
    one: Measured,
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
        path=one.map.path,
        call=one.map.call,
        op=one.map.op,
        what=what,
        source=one.map.source,
        measured=measured,
        threshold=threshold,
        advice=f"{advice[:1].upper()}{advice[1:]}.",
        others=others,
    )
