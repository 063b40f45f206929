"""Weights of a call in each other's place, and one weight of a stack at all places of a line: no shape shows either."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from fxdebug.comparison.steps import Step, StepList
from fxdebug.repair.candidates.variations.variation import NEEDED, Change, Variation
from fxdebug.repair.rerun.replaced_operations import Place, Ran
from fxdebug.repair.trials.edit_parts import is_alike, place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of

MOST_WEIGHTS = 6  # of a call, of one shape, that are exchanged in pairs
MOST_PLACES = 64

Ways: TypeAlias = tuple[tuple[Step, Variation], ...]
Users: TypeAlias = dict[str, list[tuple[Step, int]]]
"""The operations that are given a weight of a call, each with which of its inputs that is."""


def exchanges(run: StepList, steps: Sequence[Step], ran: Mapping[Place, Ran]) -> Iterator[list[Ways]]:
    """Yield the exchanges of two weights of the calls of some operations: in one of them, and in all that are alike."""
    known: set[int] = set()
    for step in reversed(steps):  # the likely ones are last
        if step.call.index in known or not step.weights:
            continue
        known.add(step.call.index)
        users = _users(run, step)
        names = [name for name in users if users[name]]
        for one, other in itertools.combinations(names[:MOST_WEIGHTS], 2):
            own = _exchange(users[one], users[other], one, other, ran)
            others = [each for each in _calls_alike(run, step) if each.call.index != step.call.index]
            more = [
                _exchange(u.get(one, []), u.get(other, []), one, other, ran) for u in (_users(run, s) for s in others)
            ]
            if own:
                yield [own, *(each for each in more if each)]


def _calls_alike(run: StepList, step: Step) -> list[Step]:
    """Return one operation of each call of the type of an operation's."""
    found: dict[int, Step] = {}
    for each in run.steps:
        if each.call.type == step.call.type and (each.call is step.call or each.op == step.op):
            found.setdefault(each.call.index, each)
    return list(found.values())[:MOST_PLACES]


def _users(run: StepList, step: Step) -> Users:
    found: Users = {}
    for each in run.steps:
        for at, given in enumerate(each.inputs):
            name = str(given.value.name or "")
            if given.is_weight and each.call is step.call and not each.unrecorded and name:
                found.setdefault(name.rpartition(".")[2], []).append((each, at))
    return found


def _exchange(
    users: list[tuple[Step, int]], others: list[tuple[Step, int]], one: str, other: str, ran: Mapping[Place, Ran]
) -> Ways:
    weights = [_weight(each, ran) for each in (users, others)]
    if weights[0] is None or weights[1] is None or weights[0].shape != weights[1].shape:
        return ()
    told = f"{one} and {other} are taken for each other: {one} is where {other} should be in b, and the reverse"
    changes: dict[int, tuple[Step, dict[int, Tensor]]] = {}
    for places, weight in ((users, weights[1]), (others, weights[0])):
        for step, at in places:
            changes.setdefault(step.index, (step, {}))[1][at] = weight
    made = ((step, partial(_with, new)) for step, new in changes.values())
    words = f"{one} and {other} exchanged"
    return tuple([(step, Variation(told, words, change, "weights", resizes=True)) for step, change in made])


def _weight(users: list[tuple[Step, int]], ran: Mapping[Place, Ran]) -> Tensor | None:
    for step, at in users:
        each = ran.get(place_in(step))
        tensors = () if each is None else tensors_of(each)
        if at < len(tensors):
            return tensors[at]
    return None


def _with(new: Mapping[int, Tensor], ran: Ran) -> Any:
    tensors = tensors_of(ran)
    if any(at >= len(tensors) or tensors[at].shape != tensor.shape for at, tensor in new.items()):
        raise NoEdit
    return computed_with(ran, new)


def own_numbers(lines: Sequence[tuple[Step, ...]], ran: Mapping[Place, Ran]) -> Iterator[Ways]:
    """Yield for a line that takes one item of a stack at all its places the item with the number of the place."""
    for line in dict.fromkeys(lines):
        indices = [_index(ran.get(place_in(step))) for step in line]
        if (
            len(line) > 1
            and None not in indices
            and len(set(indices)) == 1
            and is_alike(line[0].call.path, line[-1].call.path)
        ):
            items = f"items 0 to {len(line) - 1}"
            told = f"{{op}} takes item {indices[0]} at all {len(line)} places of this line{NEEDED}{items}"
            words = f"{{op}} with {items}"
            yield tuple(
                [
                    (step, Variation(told, words, _of_number(len(line), at), resizes=True))
                    for at, step in enumerate(line)
                ]
            )


def _index(ran: Ran | None) -> int | None:
    """Return the whole number by which an operation takes an item of a tensor, the first of several."""
    if ran is None or len(ran.args) != 2:
        return None
    index = ran.args[1]
    first = index[0] if type(index) is tuple and index else index
    return first if type(first) is int else None


def _of_number(places: int, at: int) -> Change:
    def change(ran: Ran) -> Any:
        given, index = ran.args
        if not isinstance(given, Tensor) or given.shape[0] != places:
            raise NoEdit
        return ran.function(given, at if type(index) is int else (at, *index[1:]))

    return change
