"""Compare weights slice by slice in whatever layout, by the sums of their rows and columns.

A row that is moved keeps its sum. So the rows of a weight of b are looked for among the rows of the weights that a uses
in that place: a fused weight may hold them in another order than its code takes them, hold one twice, or lack some.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fxdebug.comparison.thresholds import MANY, NEARLY_ALL, SAME_SUM
from fxdebug.data.calls import Parameter
from fxdebug.data.trace import TraceData
from fxdebug.data.weight_sums import unpacked
from fxdebug.operators.names import GATES


class Row(NamedTuple):
    """A slice of a weight of a: the module that has the weight, the weight's name, the place and the dimension."""

    owner: str
    weight: str
    place: int
    dimension: int = 0


Arrangement = tuple["Row | None", ...]
"""For each row of a weight of b the same row of a; ``None`` for zeros and for rows that a does not have."""


@dataclass(frozen=True)
class Weight:
    """A weight with the sums of its slices, by dimension."""

    parameter: Parameter
    sums: dict[int, tuple[float, ...]]

    @property
    def name(self) -> str:
        """Its first name."""
        return self.parameter.name

    @property
    def owner(self) -> str:
        """The path of the module, or the place of the several weights that are used like one module's."""
        path, _, leaf = self.name.rpartition(".")
        prefix = re.sub(r"_?(weight|bias)$|^(weight|bias)_", "", leaf)  # ``in_proj_weight``, ``weight_ih_l0``
        return f"{path}.{prefix}" if prefix else path

    @property
    def is_vector(self) -> bool:
        """Has it one dimension, as a bias has?"""
        return len(self.parameter.shape) == 1

    @property
    def is_zero(self) -> bool:
        """Are all its rows zero?"""
        return len(self.zeros()) == self.parameter.shape[0]

    def zeros(self) -> list[int]:
        """Return the rows that are zero throughout: those with the sum zero."""
        return [place for place, number in enumerate(self.sums.get(0, ())) if number == 0.0]


class Weights:
    """The weights of a run by name."""

    def __init__(self, trace: TraceData) -> None:
        self._by_name = {name: parameter for parameter in trace.parameters for name in parameter.names}
        self.names = {name: place for place, name in enumerate(self._by_name)}  # with their places in the model
        self._modules = trace.modules
        self._known: dict[str, Weight | None] = {}

    def find(self, name: str) -> Weight | None:
        """Return a weight with its sums; ``None`` where the run did not keep them."""
        if name not in self._known:
            parameter = self._by_name.get(name)
            sums = {} if parameter is None else unpacked(parameter.sums, parameter.shape)
            self._known[name] = Weight(parameter, sums) if parameter is not None and sums else None
        return self._known[name]

    def gates_of(self, name: str) -> str:
        """Return the gates of a weight of a recurrent layer of torch, whose rows are a block for each; else nothing."""
        own = name.rpartition(".")[2]
        kind = self._type(name).lower().removesuffix("cell") if name in self._by_name else ""
        return GATES.get(kind, "") if own.startswith(("weight_ih", "weight_hh", "bias_ih", "bias_hh")) else ""

    def within(self, path: str) -> list[Weight]:
        """Return the weights of the module at a path and of the modules in it."""
        prefix = f"{path}." if path else ""
        found = [self.find(name) for name in self._by_name if name.startswith(prefix)]
        return [weight for weight in found if weight is not None]

    def alike(self, name: str) -> list[str]:
        """Return the names of the same weight, of the same shape, in other layers."""
        pattern, shape, type = numberless(name), self._by_name[name].shape, self._type(name)
        return [
            other
            for other, parameter in self._by_name.items()
            if other != name and parameter.shape == shape and numberless(other) == pattern and self._type(other) == type
        ]

    def _type(self, name: str) -> str:
        """Return the class of the module that has a weight."""
        return self._modules.get(name.rpartition(".")[0], "")


def numberless(name: str) -> str:
    """Return a name without the numbers of layers; the number of a module that has the weight itself is kept.

    >>> numberless("blocks.11.attn.qkv.weight"), numberless("layer_2.fc1.weight"), numberless("weight_ih_l0_reverse")
    ('blocks.#.attn.qkv.weight', 'layer_#.fc1.weight', 'weight_ih_l#_reverse')
    >>> numberless("block1.res2.conv1.weight")
    'block#.res#.conv1.weight'
    """
    return re.sub(r"(?<![^._])\d+(?=\.)|(?<=_l)\d+(?=_|$)|(?<=[a-z])\d+(?=\.[^.]+\.)", "#", name)


def arrangement(weight: Weight, others: Iterable[Weight], dimension: int = 0) -> Arrangement | None:
    """Return where in the weights of a each slice of a weight of b is; ``None`` where fewer than half are anywhere.

    ``dimension`` 0 compares rows, 1 columns, with those of the same dimension or of the other one: a weight may be
    transposed.
    """
    mine = weight.sums.get(dimension, ())
    told_apart = {number for number in mine if number}
    if 2 * len(told_apart) < sum(number != 0.0 for number in mine) or not told_apart:
        return None  # ones, or zeros
    pools = [
        [
            (number, Row(other.owner, other.name, place, side))
            for other in others
            if other.is_vector == weight.is_vector
            for place, number in enumerate(other.sums.get(side, ()))
            if _are_comparable(weight, dimension, other, side)
        ]
        for side in ((dimension,) if weight.is_vector else (dimension, 1 - dimension))
    ]
    found = [_matched(mine, pool) for pool in pools]
    best = max(found, key=lambda rows: sum(row is not None for row in rows))
    return best if 2 * sum(row is not None for row in best) >= len(best) else None


def _are_comparable(a: Weight, dimension: int, b: Weight, side: int) -> bool:
    """Have the slices of two weights along these dimensions equally many elements?"""
    sizes = [math.prod(x.parameter.shape) // x.parameter.shape[d] for x, d in ((a, dimension), (b, side))]
    return sizes[0] == sizes[1]


def _matched(sums: Sequence[float], pool: list[tuple[float, Row]]) -> Arrangement:
    """Return the row of the pool with the same sum for each sum.

    Rows that share a sum, as elements of a narrow dtype often do by chance, are told apart by the rows around them:
    the one is taken that stands where most others say, in the same weight at the same distance from its place.
    """
    pool = sorted((entry for entry in pool if entry[0] != 0.0), key=lambda entry: entry[0])
    keys = [number for number, _ in pool]
    size = math.sqrt(math.fsum(x * x for x in sums) / len(sums))
    limit = SAME_SUM * size
    near: list[list[int]] = []
    votes: Counter[tuple[str, int, int]] = Counter()
    for at, number in enumerate(sums):
        first, end = bisect_left(keys, number - limit), bisect_right(keys, number + limit)
        near.append(list(range(first, min(end, first + MANY))) if number else [])
        votes.update({_stands(pool[i][1], at) for i in near[-1]})
    taken: set[int] = set()
    rows: list[Row | None] = []
    for at, number in enumerate(sums):
        best = min(
            near[at],
            key=lambda i: (i in taken, -votes[_stands(pool[i][1], at)], abs(keys[i] - number)),
            default=None,
        )
        rows.append(None if best is None else pool[best][1])
        taken |= set() if best is None else {best}
    return tuple(rows)


def _stands(row: Row, at: int) -> tuple[str, int, int]:
    """Return the weight of a row, and how far from its place there it is when it stands at ``at``."""
    return row.weight, row.dimension, row.place - at


def same_order(a: Arrangement, b: Arrangement) -> bool:
    """Are two weights arranged in the same way, but for the numbers in the names of their counterparts?"""
    if len(a) != len(b):
        return False
    same = sum(general(x) == general(y) for x, y in zip(a, b))
    return same >= NEARLY_ALL * len(a)


def same_owners(a: Arrangement, b: Arrangement) -> bool:
    """Do two weights of one module, such as weight and bias, come from the same places?"""
    both = [(x, y) for x, y in zip(a, b) if x is not None and y is not None]
    same = sum((x.owner, x.place) == (y.owner, y.place) for x, y in both)
    return len(a) == len(b) and same >= NEARLY_ALL * len(both)


def general(row: Row | None) -> tuple[str, int, int] | None:
    """Return what is the same for the rows of all layers."""
    return None if row is None else (numberless(row.weight), row.place, row.dimension)


def is_in_order(rows: Arrangement) -> bool:
    """Are these the rows of one weight of a, all in their places?"""
    names = {row.weight for row in rows if row is not None}
    kept = sum(row is not None and row.place == place for place, row in enumerate(rows))
    return len(names) == 1 and kept >= NEARLY_ALL * len(rows)


class Run(NamedTuple):
    """Neighbouring rows of a weight of b from one weight of a."""

    start: int
    stop: int
    weight: str | None  # of a
    first: int
    last: int


def runs_of(rows: Arrangement) -> list[Run]:
    """Return an arrangement as runs of neighbouring rows from one weight.

    >>> one = [Row("q", "q.weight", 0), Row("q", "q.weight", 1), None, Row("v", "v.weight", 3)]
    >>> [(run.start, run.stop, run.weight) for run in runs_of(tuple(one))]
    [(0, 2, 'q.weight'), (2, 3, None), (3, 4, 'v.weight')]
    """
    runs: list[Run] = []
    for place, row in enumerate(rows):
        weight, at = (None, -1) if row is None else (row.weight, row.place)
        before = runs[-1] if runs else None
        if before is not None and before.weight == weight and (row is None or at == before.last + 1):
            runs[-1] = before._replace(stop=place + 1, last=at)
        else:
            runs.append(Run(place, place + 1, weight, at, at))
    return runs
