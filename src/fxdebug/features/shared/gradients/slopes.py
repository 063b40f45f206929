"""Slopes of gradients over depth: by how much they grow or shrink from layer to layer."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

from fxdebug.features.shared.records.gradients import ResultGradient

LEAST_LAYERS = 4
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Slope:
    """The slope of the gradients of equal layers, made one after the other in one call.

    ``per_layer`` is in decades per layer, positive where gradients shrink on their way back to the input. ``decades``
    is that over all layers. ``layers`` are the results in forward order.
    """

    per_layer: float
    decades: float
    layers: tuple[ResultGradient, ...]


def slopes(results: Sequence[ResultGradient], least: int = LEAST_LAYERS) -> Iterator[Slope]:
    """Yield one slope for each call that makes ``least`` or more calls of one class in a row: the class with the most.

    Calls are in a row if their names differ in a number (``h.0``, ``h.1``) or if a ``Sequential`` makes them.

    The slope is the smaller of two medians, those of the steps between neighbours and those of all pairs (Theil and
    Sen): one layer off the line, or one single step, does not make a slope. It is taken of root mean squares, which do
    not depend on the size of a layer, and is the same for a loss in other units.
    """
    children: defaultdict[int | None, defaultdict[tuple[str, str], list[ResultGradient]]]
    children = defaultdict(lambda: defaultdict(list))
    types = {result.position: result.type for result in results}
    seen: set[int] = set()
    for result in results:
        gradient = result.gradient
        if result.position in seen or gradient is None or not gradient.rms or not math.isfinite(gradient.rms):
            continue
        seen.add(result.position)  # the first tensor that a call returned
        in_sequence = result.parent is not None and types.get(result.parent) == "Sequential"
        row = "" if in_sequence else _NUMBER.sub("#", result.path)
        children[result.parent][result.type, row].append(result)
    for kinds in children.values():
        group = max(kinds.values(), key=len)
        if len(group) < least:
            continue
        logs = [math.log10(result.gradient.rms) for result in group if result.gradient is not None]
        pairs = median((b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(logs), 2))
        per_layer = min(pairs, median(b - a for a, b in pairwise(logs)), key=abs)
        yield Slope(per_layer, per_layer * (len(group) - 1), tuple(group))
