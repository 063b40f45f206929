"""Which targets belong to which rows of a batch: in their own order, or in another; in all batches alike?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, pstdev
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fxdebug.features.shared.records.learning import RowFacts

Numbers: TypeAlias = npt.NDArray[np.floating]
DRAWS = 40
FEWEST_ROWS = 6  # of a batch
SMALL = 1e-9

ORDERS: dict[str, Callable[[Numbers], Numbers]] = {
    "of the next example": lambda rows: np.roll(rows, -1, axis=0),
    "of the example before": lambda rows: np.roll(rows, 1, axis=0),
    "in reverse order": lambda rows: rows[::-1],
}


@np.errstate(all="ignore")
def fitting(batches: Sequence[tuple[Numbers, Numbers]]) -> RowFacts | None:
    """Return which order of targets fits features, row by row, in several batches; both are centred in each batch.

    >>> draw = np.random.default_rng(0)
    >>> x = [draw.normal(size=(32, 4)) for _ in range(4)]
    >>> facts = fitting([(one, np.roll(one[:, :1], 1, axis=0)) for one in x])
    >>> facts.other[0], facts.own < 3 < facts.other[1]
    ('of the next example', True)
    """
    kept = [(x, told) for x, told in batches if len(told) >= FEWEST_ROWS]
    if not kept or not all(np.isfinite(x).all() and np.isfinite(told).all() for x, told in kept):
        return None
    draw = np.random.default_rng(0)

    def products(order: Callable[[Numbers], Numbers]) -> tuple[float, float, float]:
        each = [x.T @ order(told) for x, told in kept]
        whole, single = float(np.square(sum(each)).sum()), sum(float(np.square(one).sum()) for one in each)
        return whole**0.5, single, whole - single

    random = [products(draw.permutation) for _ in range(DRAWS)]
    true = products(lambda rows: rows)

    def above(found: float, place: int) -> float:
        those = [one[place] for one in random]
        return (found - fmean(those)) / (pstdev(those) + SMALL * abs(fmean(those)) + 1e-30)

    orders = {name: above(products(order)[1], 1) for name, order in ORDERS.items()}
    name, most = max(orders.items(), key=lambda one: one[1])
    own, across = above(true[1], 1), above(true[2], 2) if len(kept) > 2 else None
    return RowFacts((name, round(most, 2)), round(own, 2), None if across is None else round(across, 2))
