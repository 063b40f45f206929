"""Pair weights by their places in two models where their numbers contradict the order in which they are used.

A weight that holds the numbers of another layer, or that is exchanged with another one, is no sign of its own place.
"""

from __future__ import annotations

from fxdebug.comparison.pairing.by_dataflow import pair_uses
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import StepList
from fxdebug.comparison.thresholds import HALF


def pair_in_place(pairs: Pairs) -> None:
    """Pair weights by their places where both models have weights of the same shapes in the same order.

    A pair of equal numbers gives way if others contradict it, and none contradicts that of its place.
    """
    places = _places(pairs)
    known = {number: pair for number, pair in pairs.values.items() if number in places}
    anchors = [(pair.a, number) for number, pair in known.items() if places[number] == pair.a]
    elsewhere = [
        (pair.a, number) for number, pair in known.items() if pair.matched_by == "weights" and places[number] != pair.a
    ]
    if not elsewhere or len(anchors) < HALF * len(places):
        return
    used = _first_uses(pairs.a), _first_uses(pairs.b)
    in_place = [(places[number], number) for _, number in elsewhere]
    moved = [
        pair
        for pair, own in zip(elsewhere, in_place)
        if _contradicts(pair, [*anchors, *elsewhere], *used) and not _contradicts(own, [*anchors, *in_place], *used)
    ]
    for one, other in moved:
        del pairs.values[other]
        del pairs.values_of_a[one]
    released = {one for one, _ in moved}, {other for _, other in moved}
    for other, one in places.items():
        if other in released[1] or one in released[0]:
            pairs.add_value(pairs.a.values[one], pairs.b.values[other], "weights", 0.8)
    pair_uses(pairs, released[1])  # before equal results, which such weights make in each other's places


def _places(pairs: Pairs) -> dict[int, int]:
    """Return for each weight of b that of a in the same place; nothing where the models have other weights."""
    of_a, of_b = pairs.a.trace.parameters, pairs.b.trace.parameters
    if len(of_a) != len(of_b) or any(one.shape != other.shape for one, other in zip(of_a, of_b)):
        return {}
    numbers = [
        {value.name: run.root(value).number for value in run.values.values() if value.name is not None}
        for run in (pairs.a, pairs.b)
    ]
    sides = [(numbers[1].get(other.name), numbers[0].get(one.name)) for one, other in zip(of_a, of_b)]
    return {other: one for other, one in sides if other is not None and one is not None}


def _first_uses(run: StepList) -> dict[int, int]:
    """Return for each weight the step that uses it first."""
    weights = [run.root(value).number for value in run.values.values() if value.name is not None]
    return {number: run.users[number][0].index for number in weights if run.users.get(number)}


def _contradicts(
    pair: tuple[int, int], anchors: list[tuple[int, int]], used_in_a: dict[int, int], used_in_b: dict[int, int]
) -> bool:
    """Is a weight used before, with or after others in one model, and not so in the other model?"""
    at = used_in_a.get(pair[0]), used_in_b.get(pair[1])
    if at[0] is None or at[1] is None:
        return False
    sides = [(used_in_a.get(one), used_in_b.get(other)) for one, other in anchors]
    return any(
        (one > at[0], one < at[0]) != (other > at[1], other < at[1])
        for one, other in sides
        if one is not None and other is not None
    )
