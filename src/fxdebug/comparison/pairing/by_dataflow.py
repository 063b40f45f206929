"""Pairing by the way values take: what is done to paired values, what paired operations are given, what stands between.

This carries pairs across a fault, where values differ and only structure is left to go by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container

from fxdebug.comparison.pairing.align import in_order
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import How
from fxdebug.comparison.steps import Step, StepInput, StepList, kindred
from fxdebug.comparison.tolerance import error_between
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import BIAS_FIRST, COMMUTATIVE, family


def pair_by_flow(pairs: Pairs) -> None:
    """Forwards, backwards, then what is left between, until nothing is added."""
    for _ in range(8):
        before = len(pairs.steps) + len(pairs.values)
        pair_uses(pairs)
        pair_forwards(pairs)
        pair_backwards(pairs)
        if len(pairs.steps) + len(pairs.values) == before:
            pair_between(pairs)
        if len(pairs.steps) + len(pairs.values) == before:
            return


def pair_uses(pairs: Pairs) -> None:
    """Operations on paired weights: the first use with the first."""
    for number, found in list(pairs.values.items()):
        if pairs.b.values[number].name is None:
            continue
        one = [s for s in pairs.a.users.get(found.a, ()) if s.index not in pairs.steps_of_a and not s.transparent]
        other = [s for s in pairs.b.users.get(number, ()) if s.index not in pairs.steps and not s.transparent]
        for left, right in zip(one, other):
            if kindred(left, right) and sizes(left) == sizes(right):
                pair_products(pairs, left, right, "weights", 0.9)


def pair_products(pairs: Pairs, a: Step, b: Step, how: How, sure: float) -> None:
    """Pair two steps; where only one of them adds its bias or norms in a step of its own, what they come to."""
    ends = [a, b]
    if has_bias(a) != has_bias(b):
        ends = [biased(run, step) or step for run, step in ((pairs.a, a), (pairs.b, b))]
    norms = [normed(run, step) for run, step in zip((pairs.a, pairs.b), ends)]
    if (norms[0] is None) != (norms[1] is None):
        ends = [norm or step for norm, step in zip(norms, ends)]
    if ends == [a, b]:
        pairs.step(a, b, how, sure)
    else:
        pairs.value(ends[0].outputs[0], ends[1].outputs[0], how, sure)


def has_bias(step: Step) -> bool:
    """Is it a product that adds a vector of weights, too?"""
    return family(step.name) == "product" and len(step.weights) > 1 and len(step.weights[-1].value.shape) == 1


def biased(run: StepList, step: Step) -> Step | None:
    """The sum that adds the bias to a product without one, if that is all that is done with the product."""
    product = family(step.name) == "product" and step.outputs
    users = run.users.get(run.root(step.outputs[0]).number, ()) if product else ()
    users = [user for user in users if not user.transparent]
    if len(users) != 1 or users[0].name != "add" or len(users[0].weights) != 1 or not users[0].outputs:
        return None
    bias = users[0].weights[0].value
    return users[0] if len(bias.shape) == 1 and users[0].outputs[0].numel == step.outputs[0].numel else None


def pair_forwards(pairs: Pairs) -> None:
    """The same operation on paired values gives paired results."""
    for step in pairs.b.steps:
        if step.index in pairs.steps or not step.outputs or step.transparent:
            continue
        partner = _doing_the_same(pairs, step)
        if partner is not None:
            pair_products(pairs, partner, step, "dataflow", 0.85)


def normed(run: StepList, step: Step) -> Step | None:
    """The batch norm that is all that is done with a product with weights."""
    users = run.users.get(run.root(step.outputs[0]).number, ()) if step.weights and step.outputs else ()
    return users[0] if len(users) == 1 and users[0].name == "batch_norm" and users[0].outputs else None


def _doing_the_same(pairs: Pairs, step: Step) -> Step | None:
    data = step.data
    wanted = [pairs.of_value(given.value) for given in data]
    if not data or any(value is None for value in wanted):
        return None
    numbers = [value.number for value in wanted if value is not None]
    for candidate in pairs.a.users.get(numbers[0], ()):
        if candidate.index in pairs.steps_of_a or not kindred(candidate, step):
            continue
        given = [pairs.a.root(item.value).number for item in candidate.data]
        fits = sorted(given) == sorted(numbers) if step.name in COMMUTATIVE else given == numbers
        if fits and not _weights_clash(pairs, candidate, step) and sizes(candidate) == sizes(step):
            return candidate
    return None


def sizes(step: Step) -> list[int]:
    """How many elements each result has: a fused projection is not one of its parts."""
    return [value.numel for value in step.outputs]


def _weights_clash(pairs: Pairs, a: Step, b: Step) -> bool:
    """Do they use weights that belong to something else?"""
    own = {pairs.a.root(given.value).number for given in a.weights}
    for given in b.weights:
        partner = pairs.of_value(given.value)
        if partner is not None and partner.number not in own:
            return True
    return False


def pair_backwards(pairs: Pairs) -> None:
    """What paired operations are given in the same place belongs together."""
    for step in reversed(pairs.b.steps):
        found = pairs.steps.get(step.index)
        if found is None or step.transparent:
            continue
        partner = pairs.a.steps[found.a]
        for one, other in facing(pairs, partner, step):
            if (
                pairs.free(one.value, other.value)
                and one.value.numel == other.value.numel
                and not _apart(pairs, one, other)
            ):
                pairs.join(one.value, other.value, "dataflow", min(found.sure, 0.8))


def _apart(pairs: Pairs, a: StepInput, b: StepInput) -> bool:
    """Are they products of another kind: with weights or of two values, with something added or without?"""
    one, other = pairs.a.made.get(pairs.a.root(a.value).number), pairs.b.made.get(pairs.b.root(b.value).number)
    return one is not None and other is not None and family(one.name) == family(other.name) and not kindred(one, other)


def facing(pairs: Pairs, a: Step, b: Step) -> list[tuple[StepInput, StepInput]]:
    """The inputs of two steps side by side: data with data, weights with weights, by argument, else in order."""
    found: list[tuple[StepInput, StepInput]] = []
    left_over: list[tuple[list[StepInput], list[StepInput]]] = []
    for one, other in ((factors(a, b), factors(b, a)), (list(a.weights), list(b.weights))):
        for right in list(other):
            left = next((left for left in one if pairs.are(left.value, right.value)), None)
            swappable = b.name in COMMUTATIVE or right.weight or (left is not None and left.argument == right.argument)
            if left is not None and (swappable or a.name != b.name):
                found.append((left, right))
                one.remove(left)
                other.remove(right)
        for right in list(other):
            left = next((left for left in one if left.argument == right.argument and left.memory == right.memory), None)
            if left is not None and a.name == b.name:
                found.append((left, right))
                one.remove(left)
                other.remove(right)
        if a.loose or b.loose:  # all that was at hand: what has no partner says nothing
            continue
        found += zip(one, other)
        left_over.append((one[len(other) :], other[len(one) :]))
    if not left_over:
        return found
    (data_a, data_b), (weights_a, weights_b) = left_over  # a buffer here may be computed there
    return [*found, *zip(data_a, weights_b), *zip(weights_a, data_b)]


def factors(step: Step, other: Step) -> list[StepInput]:
    """The data of a step; of a product that also adds something, beside one that does not, what is multiplied."""
    data = list(step.data)
    return data[1:] if step.name in BIAS_FIRST and other.name not in BIAS_FIRST and len(data) == 3 else data


def pair_between(pairs: Pairs) -> None:
    """What is left between two pairs: the same operations in the same order, of the same size."""
    chain = _chain([(found.a, index) for index, found in sorted(pairs.steps.items())])
    last_a = last_b = -1
    for stop_a, stop_b in [*chain, (len(pairs.a.steps), len(pairs.b.steps))]:
        one = _left(pairs.a, last_a, stop_a, pairs.steps_of_a)
        other = _left(pairs.b, last_b, stop_b, pairs.steps)
        if one and other:
            for left, right in in_order(one, other, _score, lambda step: (family(step.name), *sizes(step))):
                pairs.step(left, right, "order", 0.6)
        last_a, last_b = stop_a, stop_b


def _left(run: StepList, start: int, stop: int, paired: Container[int]) -> list[Step]:
    return [
        step
        for step in run.steps[start + 1 : stop]
        if step.index not in paired and step.outputs and not step.transparent
    ]


def _score(a: Step, b: Step) -> float:
    one, other = a.outputs[0], b.outputs[0]
    if not kindred(a, b) or one.numel != other.numel:
        return 0.0
    score = 1.0 + (one.dtype in EPS and other.dtype in EPS) + (a.name == b.name)
    error = error_between(one.stats, other.stats)
    return score + (1.0 if error is not None and error < 1e-3 else 0.0)


def _chain(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs that are in the same order on both sides (given in the order of b)."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = [-1] * len(pairs)
    for place, (a, _) in enumerate(pairs):
        at = bisect_left(tails, a)
        if at == len(tails):
            tails.append(a)
            ends.append(place)
        else:
            tails[at], ends[at] = a, place
        before[place] = ends[at - 1] if at else -1
    chain, place = [], ends[-1] if ends else -1
    while place >= 0:
        chain.append(pairs[place])
        place = before[place]
    return chain[::-1]
