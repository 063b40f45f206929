"""Say how a weight of b differs from that of a: rows exchanged, a factor, transposed, the weight of another layer.

Sums of slices tell: they keep their places, change them, or are multiplied. What fits none of these is not named.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from fxdebug.comparison.diagnosis.weights.weight_slices import Weight, Weights
from fxdebug.comparison.thresholds import COPIED, FEW, SAME_SUM
from fxdebug.comparison.tolerance import rms_of
from fxdebug.data.measures import enumerated
from fxdebug.data.values import Stats
from fxdebug.operators.dtypes import EPS

Sums: TypeAlias = Sequence[float]


def changed_weight(a: str, b: str, weights_a: Weights, weights_b: Weights) -> str | None:
    """Return how a weight of b differs from one of a, as a sentence; ``None`` where no simple change explains it."""
    one, other = weights_a.find(a), weights_b.find(b)
    if one is None or other is None or one.parameter.shape != other.parameter.shape:
        return None
    ours = "that of a" if a == b else f"{a} of a"
    if have_equal_sums(one, other):
        return None
    if other.is_zero:
        return f"{b} is zero, {ours} is not"
    sides = _stats(one), _stats(other)
    if sides[1] is not None and sides[1].min == sides[1].max and sides[0] is not None and sides[0].min != sides[0].max:
        return f"{b} is {sides[1].max:g} throughout, {ours} is not"
    elsewhere = [name for name in weights_a.names if name != one.name and _is_there(weights_a.find(name), other)]
    if elsewhere:
        beside = [name for name in weights_b.names if name != other.name and _is_there(weights_b.find(name), one)]
        told = f"{b} is {elsewhere[0]} of a, not {a}"
        return told + (f": exchanged with {beside[0]}" if len(beside) == 1 else "")
    tied = [name for name in one.parameter.names if name not in other.parameter.names]
    if len(one.parameter.names) > len(other.parameter.names) and tied:
        return f"{b} has numbers of its own, in a it is tied to {tied[0]}"
    for find in _CHANGES:
        change = find(one, other)
        if change:
            return f"{b} is {ours} {change}"
    change = _rearranged(one, other, weights_b.gates_of(b))
    if change:
        return f"{b} is {ours} {change}"
    return _few_rows(one, other)


def changed_among(a: Sequence[str], b: Sequence[str], weights_a: Weights, weights_b: Weights) -> str | None:
    """Return how one weight of several differs, where all others are the same; ``None`` where it is not one."""
    known = [weights_a.find(name) for name in a]
    gone = [name for name in a if not any(_is_there(weights_a.find(name), w) for w in map(weights_b.find, b) if w)]
    new = [name for name in b if not any(w is not None and _is_there(weights_b.find(name), w) for w in known)]
    return changed_weight(gone[0], new[0], weights_a, weights_b) if len(gone) == len(new) == 1 else None


def changed_within(path_a: str, path_b: str, weights_a: Weights, weights_b: Weights) -> str | None:
    """Return how weights of a module of b differ from those of a module of a; ``None`` where none is known to."""
    told: list[str] = []
    for other in weights_b.within(path_b):
        one = weights_a.find(f"{path_a}{other.name[len(path_b) :]}".lstrip("."))
        known = one is not None and one.parameter.dtype == other.parameter.dtype  # a cast changes sums, too
        if one is None or not known or one.parameter.shape != other.parameter.shape or have_equal_sums(one, other):
            continue
        ours = "that of a" if one.name == other.name else f"{one.name} of a"
        told.append(changed_weight(one.name, other.name, weights_a, weights_b) or f"{other.name} differs from {ours}")
    more = len(told) - 1
    return told[0] + (f"; {more} more of its weights differ{'s' * (more == 1)}" if more else "") if told else None


def _is_there(weight: Weight | None, other: Weight) -> bool:
    return weight is not None and weight.parameter.shape == other.parameter.shape and is_same(weight, other)


def is_same(one: Weight, other: Weight) -> bool:
    """Have two weights of one shape the same sums of slices, in the same places?"""
    return _are_told_apart(other) and have_equal_sums(one, other)


def have_equal_sums(one: Weight, other: Weight) -> bool:
    """Are the sums of their slices equal? So are those of two biases of zeros."""
    return all(equal_sums(one.sums[at], other.sums[at]) for at in other.sums)


def _are_told_apart(weight: Weight) -> bool:
    """Do the sums of a weight say which one it is? Those of ones do not."""
    return any(max(sums) - min(sums) > SAME_SUM * _size(sums) for sums in weight.sums.values() if sums)


def equal_sums(one: Sums, other: Sums, scale: float = 0.0) -> bool:
    """Are two lists of sums equal but for rounding, relative to their size, or to ``scale`` where that is larger?"""
    limit = SAME_SUM * max(_size(one), _size(other), scale)
    return len(one) == len(other) and all(abs(x - y) <= limit for x, y in zip(one, other))


def _size(sums: Sums) -> float:
    return math.sqrt(math.fsum(x * x for x in sums) / max(len(sums), 1))


# Changes of a whole weight -----------------------------------------------------------------------


def _multiplied(one: Weight, other: Weight) -> str:
    sides = _stats(one), _stats(other)
    if sides[0] is None or sides[1] is None or not rms_of(sides[0]):
        return ""
    factor = rms_of(sides[1]) / rms_of(sides[0])
    for sign in (factor, -factor):
        if all(equal_sums([sign * x for x in one.sums[at]], other.sums[at]) for at in one.sums):
            return "with the other sign" if math.isclose(sign, -1.0, rel_tol=1e-4) else f"× {sign:.4g}"
    return ""


def _stats(weight: Weight) -> Stats | None:
    return weight.parameter.before or weight.parameter.stats


def _shifted(one: Weight, other: Weight) -> str:
    """Is the same number added to all elements, as in norms that multiply with 1 + weight?"""
    shape = one.parameter.shape
    numbers = set()
    for at in one.sums:
        size = math.prod(shape) / shape[at]
        steps = [(y - x) / size for x, y in zip(one.sums[at], other.sums[at])]
        mean = math.fsum(steps) / len(steps)
        limit = SAME_SUM * max(_size(one.sums[at]), _size(other.sums[at])) / size
        if any(abs(step - mean) > limit for step in steps):
            return ""
        numbers.add(f"{mean:+.4g}")
    number = numbers.pop() if len(numbers) == 1 else ""
    return f"{number[0]} {number[1:]}" if number else ""


def _transposed(one: Weight, other: Weight) -> str:
    shape = one.parameter.shape
    for i, j in itertools.combinations(range(len(shape)), 2):
        places = [j if at == i else i if at == j else at for at in range(len(shape))]
        known = all(at in one.sums and at in other.sums for at in (i, j)) and shape[i] == shape[j]
        if known and all(equal_sums(one.sums[places[at]], other.sums[at]) for at in other.sums):
            return "transposed" if len(shape) == 2 else f"with its dimensions {i} and {j} transposed"
    return ""


def _rearranged(one: Weight, other: Weight, gates: str) -> str:
    """Are its slices along one dimension in other places? ``gates`` are those that its rows are blocks for."""
    for at in other.sums:
        rest_is_equal = all(equal_sums(one.sums[d], other.sums[d]) for d in other.sums if d != at)
        places = _places(one.sums[at], other.sums[at]) if rest_is_equal else None
        if places is not None:
            what = _slices(other, at)
            in_gates = _blocks(places, gates, what) if gates and at == 0 else ""
            return f"with {in_gates or _order(places, what)}"
    return ""


def _blocks(places: list[int], gates: str, what: str) -> str:
    """Say in which order blocks of slices are, where they moved as three or four wholes; empty where they did not.

    >>> _blocks([2, 3, 0, 1, 4, 5], "rzn", "rows"), _blocks([2, 3, 0, 1, 4, 5], "", "rows")
    ('the gates r and z exchanged', 'rows 0:2 and 2:4 exchanged')
    """
    for count in (3, 4):
        size, rest = divmod(len(places), count)
        if rest or size < 2 or (gates and count != len(gates)):
            continue
        order = [places[block * size] // size for block in range(count)]
        if sorted(order) != list(range(count)):
            continue
        if places != [order[at // size] * size + at % size for at in range(len(places))]:
            continue
        moved = [block for block, other in enumerate(order) if block != other]
        if len(moved) == 2:
            one, other = [f"{block * size}:{(block + 1) * size}" for block in moved]
            return (
                f"the gates {gates[moved[0]]} and {gates[moved[1]]} exchanged"
                if gates
                else (f"{what} {one} and {other} exchanged")
            )
        if gates:
            return f"the gates in the order {', '.join(gates[block] for block in order)}, and not {', '.join(gates)}"
        return f"its {('thirds', 'quarters')[count - 3]} in the order {', '.join(str(block + 1) for block in order)}"
    return ""


def _slices(weight: Weight, dimension: int, many: bool = True) -> str:
    if not weight.is_vector and dimension > 1:
        return f"slice{'s' * many} along dimension {dimension}"
    return ("element" if weight.is_vector else ("row", "column")[dimension]) + "s" * many


def _places(one: Sums, other: Sums) -> list[int] | None:
    """Return the place in ``one`` of each number in ``other``; ``None`` where they are not the same numbers."""
    order_a, order_b = (sorted(range(len(sums)), key=sums.__getitem__) for sums in (one, other))
    if not equal_sums([one[i] for i in order_a], [other[i] for i in order_b]):
        return None
    places = [0] * len(other)
    for i, j in zip(order_a, order_b):
        places[j] = i
    return places


def _order(places: list[int], what: str) -> str:
    """Say in which order slices are: two exchanged, shifted, reversed, interleaved, halves exchanged.

    >>> _order([0, 3, 2, 1], "rows"), _order([0, 2, 1, 3], "rows"), _order([3, 2, 1, 0], "rows")
    ('rows 1 and 3 exchanged', 'rows 1 and 2 exchanged', 'rows in reverse order')
    >>> _order([0, 3, 1, 4, 2, 5], "rows"), _order([2, 0, 1, 5, 4, 3], "rows")
    ('the halves of its rows interleaved', '5 of 6 rows in other places')
    """
    count = len(places)
    moved = [place for place, other in enumerate(places) if place != other]
    if len(moved) == 2:
        return f"{what} {moved[0]} and {moved[1]} exchanged"
    if places == list(range(count))[::-1]:
        return f"{what} in reverse order"
    if all(place == (places[0] + i) % count for i, place in enumerate(places)):
        half = 2 * places[0] == count
        return f"the halves of its {what} exchanged" if half else f"{what} shifted by {count - places[0]}"
    if count % 2 == 0:
        halves = [i // 2 + (i % 2) * (count // 2) for i in range(count)]
        if places == halves:
            return f"the halves of its {what} interleaved"
        if [places.index(i) for i in range(count)] == halves:
            return f"its even {what} before the odd ones"
    return _blocks(places, "", what) or f"{len(moved)} of {count} {what} in other places"


def _rounded(one: Weight, other: Weight) -> str:
    """Do the sums of slices differ by what rounding every element to a narrow dtype adds up to?

    A rounding is off by up to half a step, 0.58 of that on average (root mean square of a uniform error); a sum over n
    elements by the root of n times as much.
    """
    stats, shape = _stats(one), one.parameter.shape
    if stats is None or one.parameter.dtype != other.parameter.dtype or EPS.get(one.parameter.dtype, 1.0) > COPIED:
        return ""
    if not rms_of(stats):
        return ""  # all zeros: nothing of it is rounded
    for dtype in ("float16", "bfloat16"):
        step = rms_of(stats) * EPS[dtype] / 2 / math.sqrt(3)
        ratios = [
            abs(x - y) / (step * math.sqrt(math.prod(shape) / shape[at]))
            for at in one.sums
            for x, y in zip(one.sums[at], other.sums[at])
        ]
        usual = math.sqrt(math.fsum(ratio * ratio for ratio in ratios) / len(ratios)) if ratios else 0.0
        if 0.25 < usual < 1.5 and max(ratios) < 5:
            return f"but for as much as rounding to {dtype} changes"
    return ""


_CHANGES: tuple[Callable[[Weight, Weight], str], ...] = (_multiplied, _shifted, _transposed, _rounded)


# Changes of a few rows ---------------------------------------------------------------------------


def _few_rows(one: Weight, other: Weight) -> str | None:
    """Say which few slices of a weight are zero or others than those of a."""
    for at in other.sums:
        sums = one.sums[at], other.sums[at]
        limit = SAME_SUM * max(map(_size, sums))
        wrong = [place for place, (x, y) in enumerate(zip(*sums)) if abs(x - y) > limit]
        if not 0 < len(wrong) <= max(1.0, FEW * len(sums[0])):
            continue
        many = len(wrong) > 1
        what = _slices(other, at, many)
        told = f"{what} {_listed(wrong)} of {other.name}"
        if all(sums[1][place] == 0.0 for place in wrong) and not any(sums[0][place] == 0.0 for place in wrong):
            return f"{told} {'are zero, in a they are not' if many else 'is zero, in a it is not'}"
        return f"{told} {'differ from those' if many else 'differs from that'} of a"
    return None


def _listed(places: Iterable[int]) -> str:
    """Return numbers as text, those in a row as a range.

    >>> _listed([7]), _listed([4, 5, 6, 7]), _listed([1, 3])
    ('7', '4:8', '1 and 3')
    """
    known = list(places)
    if len(known) > 1 and known[-1] - known[0] == len(known) - 1:
        return f"{known[0]}:{known[-1] + 1}"
    return enumerated([str(place) for place in known])
