"""Two sets of weights of which one may be an average of the other: what no average of weights looks like."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import nn

from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.features.shared.drawn.as_drawn import are_as_drawn, is_trained
from fxdebug.features.weights.changed.kinds import finding_on, is_statistic
from fxdebug.features.weights.record import WeightChange
from fxdebug.operators.dtypes import EPS
from fxdebug.store.tensors.checkpoints import Weights

LEAST = 3  # weights, of which a common change is no chance
LARGER, SMALLER, TINY = 3.0, 0.5, 0.1  # a small net may grow by a factor of 2 while it learns
ALIKE, CLOSE = 1.25, 0.9  # largest over smallest factor, and the cosine, of weights that are those of before, scaled
BEYOND_ROUNDING = 4.0  # steps of the narrower dtype


def find_no_averages(changes: Sequence[WeightChange]) -> Iterator[Finding]:
    """Yield what all weights of the second have in common, where an average of the first would not have it."""
    known = [change for change in changes if _is_known(change)]
    if len(known) < LEAST:
        return
    sizes = [(change.norm_b or 0.0) / (change.norm or 1.0) for change in known]
    span = f"{min(sizes):.3g} to {max(sizes):.3g} times"
    if min(sizes) > LARGER:
        yield _finding(
            known,
            f"all {len(known)} weights of the second are larger, {span}: an average is not larger than what it "
            "averages",
            "If it is meant to be an average, it runs away: the sign of its update is wrong (average += (1 - decay) * "
            "(weight - average)), or its factors are together more than 1.",
        )
    elif max(sizes) < TINY or (max(sizes) < SMALLER and _are_scaled(known, sizes)):
        scaled = _are_scaled(known, sizes)
        middle = sorted(sizes)[len(sizes) // 2]
        each = f"about {middle:.3g} times those of the first" if scaled else f"smaller, {span}"
        yield _finding(
            known,
            f"all {len(known)} weights of the second are {each}: an average of weights is not",
            "If it is meant to be an average, it begins at 0 and is not divided by 1 - decay^steps, or its factors are "
            "together less than 1.",
        )
    yield from _coarse(known)


def find_as_drawn(a: Weights, model: nn.Module | None, trained: nn.Module | None) -> Iterator[Finding]:
    """Yield that a model is as it was drawn, where the weights that it is compared with are not."""
    if model is None or (trained is not None and not is_trained(trained)):
        return
    drawn = are_as_drawn(model, a)
    if drawn:
        yield Finding(
            rule="as drawn",
            severity=WARNING,
            path=drawn[0].rpartition(".")[0],
            call=f"{drawn[0].rpartition('.')[0]}#0",
            op=drawn[0],
            what=f"{len(drawn)} matrices of the second, all that are large enough to tell, are as torch draws them, "
            "and those of the first are trained",
            measured=float(len(drawn)),
            threshold=0.0,
            advice="An average that stays at its start gets no update that its dtype can hold, or is not updated; a "
            "model that was to be loaded was not.",
            others=tuple(drawn[1:]),
        )


def _is_known(change: WeightChange) -> bool:
    is_large = math.prod(change.shape_a or ()) > 1
    return is_large and bool(change.norm and change.norm_b and change.differing) and not is_statistic(change.name)


def _are_scaled(known: Sequence[WeightChange], sizes: Sequence[float]) -> bool:
    """Are the weights of the second those of the first, but for one factor and for what an average smooths?"""
    return max(sizes) < ALIKE * min(sizes) and all((change.cosine or 0.0) > CLOSE for change in known)


def _coarse(known: Sequence[WeightChange]) -> Iterator[Finding]:
    """Weights of a narrower dtype in the second that differ by more than its rounding."""
    narrower = [
        change
        for change in known
        if EPS.get(change.dtype_b or "", 0.0) > EPS.get(change.dtype_a or "", 0.0) > 0
        and (change.change or 0.0) > BEYOND_ROUNDING * EPS[change.dtype_b or ""] * (change.norm or 0.0)
    ]
    if len(narrower) == len(known):
        dtype = known[0].dtype_b or ""
        yield _finding(
            known,
            f"all {len(known)} weights of the second are in {dtype}, and differ from the first by more than rounding",
            f"If it is meant to be an average: {dtype} loses each step of less than 1/{round(2 / EPS[dtype])} of a "
            "weight, as most steps of an average are. Keep it in float32.",
        )


def _finding(known: Sequence[WeightChange], what: str, advice: str) -> Finding:
    return finding_on("no average", ADVICE, [change.name for change in known], what, advice)
