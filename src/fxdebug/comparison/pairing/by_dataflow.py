"""Pair by dataflow: the users of paired values, the inputs of paired operations, and the steps left between.

This carries pairs across a fault, where values differ and only structure is left to go by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container

from fxdebug.comparison.pairing.align import aligned_pairs
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import MatchedBy
from fxdebug.comparison.steps import Step, StepInput, StepList, interchangeable
from fxdebug.comparison.tolerance import error_between, tolerance_of
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import BIAS_FIRST, COMMUTATIVE, COPYING, PICKING, SLICES, family


def pair_by_dataflow(pairs: Pairs) -> None:
    """Pair forwards, backwards, then the steps left between, until nothing is added."""
    for _ in range(8):
        before = len(pairs.steps) + len(pairs.values)
        pair_uses(pairs)
        pair_forwards(pairs)
        pair_backwards(pairs)
        if len(pairs.steps) + len(pairs.values) == before:
            pair_between(pairs)
        if len(pairs.steps) + len(pairs.values) == before:
            return


def pair_uses(pairs: Pairs, only: Container[int] | None = None) -> None:
    """Pair operations on paired weights, or on some of b's: the first use with the first."""
    for number, pair in list(pairs.values.items()):
        if pairs.b.values[number].name is None or (only is not None and number not in only):
            continue
        one = [s for s in pairs.a.users.get(pair.a, ()) if s.index not in pairs.steps_of_a and not s.transparent]
        other = [s for s in pairs.b.users.get(number, ()) if s.index not in pairs.steps and not s.transparent]
        for left, right in zip(one, other):
            alike = interchangeable(left, right) and result_sizes(left) == result_sizes(right)
            if alike and not _is_a_part(left, right):
                pair_products(pairs, left, right, "weights", 0.9)


def _is_a_part(a: Step, b: Step) -> bool:
    """Does one of two products sum over fewer numbers, as one that is added to another one for the rest?

    Both have the bias then, and results of the same size.
    """
    sides = [[max((given.value.numel for given in kind), default=0) for kind in (s.data, s.weights)] for s in (a, b)]
    return family(b.name) == "product" and all(one != other for one, other in zip(*sides))


def pair_products(pairs: Pairs, a: Step, b: Step, matched_by: MatchedBy, confidence: float) -> None:
    """Pair two steps; where only one side has the bias or a batch norm in a later step, pair the final results."""
    ends = [a, b]
    if has_bias(a) != has_bias(b):
        ends = [following_bias(run, step) or step for run, step in ((pairs.a, a), (pairs.b, b))]
    norms = [following_batch_norm(run, step) for run, step in zip((pairs.a, pairs.b), ends)]
    if (norms[0] is None) != (norms[1] is None):
        ends = [norm or step for norm, step in zip(norms, ends)]
    if ends == [a, b]:
        pairs.add_step(a, b, matched_by, confidence)
    else:
        pairs.add_value(ends[0].outputs[0], ends[1].outputs[0], matched_by, confidence)


def has_bias(step: Step) -> bool:
    """Is it a product that also adds a vector of weights?"""
    return family(step.name) == "product" and len(step.weights) > 1 and len(step.weights[-1].value.shape) == 1


def following_bias(run: StepList, step: Step) -> Step | None:
    """Return the sum that adds the bias to a product without one, where it is the product's only use."""
    product = family(step.name) == "product" and step.outputs
    users = run.users.get(run.root(step.outputs[0]).number, ()) if product else ()
    users = [user for user in users if not user.transparent]
    if len(users) != 1 or users[0].name != "add" or len(users[0].inputs) != 2 or not users[0].outputs:
        return None
    roots = [run.root(given.value) for given in users[0].inputs]  # a bias may be added as a column: a view of it
    added = [root for root in roots if root.name is not None and len(root.shape) == 1]
    return users[0] if len(added) == 1 and users[0].outputs[0].numel == step.outputs[0].numel else None


def pair_forwards(pairs: Pairs) -> None:
    """Pair the same operations on paired values."""
    for step in pairs.b.steps:
        if step.index in pairs.steps or not step.outputs or step.transparent:
            continue
        partner = _counterpart(pairs, step)
        if partner is not None:
            pair_products(pairs, partner, step, "dataflow", 0.85)


def following_batch_norm(run: StepList, step: Step) -> Step | None:
    """Return the batch norm of a product with weights, where it is the product's only use."""
    users = run.users.get(run.root(step.outputs[0]).number, ()) if step.weights and step.outputs else ()
    return users[0] if len(users) == 1 and users[0].name == "batch_norm" and users[0].outputs else None


def _counterpart(pairs: Pairs, step: Step) -> Step | None:
    data = step.data
    wanted = [pairs.value_in_a(given.value) for given in data]
    if not data or any(value is None for value in wanted):
        return None
    numbers = [value.number for value in wanted if value is not None]
    for candidate in pairs.a.users.get(numbers[0], ()):
        if candidate.index in pairs.steps_of_a or not interchangeable(candidate, step):
            continue
        given = [pairs.a.root(item.value).number for item in candidate.data]
        fits = sorted(given) == sorted(numbers) if step.name in COMMUTATIVE else given == numbers
        alike = result_sizes(candidate) == result_sizes(step) or _is_the_only_use(pairs, candidate, step)
        if fits and not _weights_clash(pairs, candidate, step) and alike:
            return candidate
    return None


def _is_the_only_use(pairs: Pairs, a: Step, b: Step) -> bool:
    """Is an operation the only one of its name on its data in either run, so that another size is another setting?

    Products may be fused projections and their parts; what takes or repeats elements may do so in several ways.
    """
    if a.name != b.name or family(b.name) == "product" or b.name in SLICES | PICKING | COPYING:
        return False
    sides = (pairs.a, a), (pairs.b, b)
    users = [
        [user for user in run.users.get(run.root(s.data[0].value).number, ()) if user.name == s.name]
        for run, s in sides
    ]
    return all(len(each) == 1 for each in users)


def result_sizes(step: Step) -> list[int]:
    """Return how many elements each result has, which tells a fused projection from its parts."""
    return [value.numel for value in step.outputs]


def _weights_clash(pairs: Pairs, a: Step, b: Step) -> bool:
    """Does a step of b use a weight whose partner the step of a does not use?"""
    own = {pairs.a.root(given.value).number for given in a.weights}
    for given in b.weights:
        partner = pairs.value_in_a(given.value)
        if partner is not None and partner.number not in own:
            return True
    return False


def pair_backwards(pairs: Pairs) -> None:
    """Pair the values that paired operations are given in the same place."""
    for step in reversed(pairs.b.steps):
        pair = pairs.steps.get(step.index)
        if pair is None or step.transparent:
            continue
        partner = pairs.a.steps[pair.a]
        for one, other in facing_inputs(pairs, partner, step):
            if (
                pairs.both_unpaired(one.value, other.value)
                and one.value.numel == other.value.numel
                and not _made_by_other_kinds(pairs, one, other)
                and not _is_input_of_one(pairs, one, other)
            ):
                pairs.add_value_and_makers(one.value, other.value, "dataflow", min(pair.confidence, 0.8))


def _made_by_other_kinds(pairs: Pairs, a: StepInput, b: StepInput) -> bool:
    """Were they made by products of different kinds: with weights or not, with an added operand or not?"""
    one, other = pairs.a.maker(a.value), pairs.b.maker(b.value)
    return (
        one is not None
        and other is not None
        and family(one.name) == family(other.name)
        and not interchangeable(one, other)
    )


def _is_input_of_one(pairs: Pairs, a: StepInput, b: StepInput) -> bool:
    """Was one of them given to its run, while the other run computed the other one, with other numbers?"""
    if pairs.a.is_input(a.value) == pairs.b.is_input(b.value):
        return False
    error = error_between(a.value.stats, b.value.stats)
    return error is None or error > tolerance_of(a.value.dtype, b.value.dtype)


def facing_inputs(pairs: Pairs, a: Step, b: Step) -> list[tuple[StepInput, StepInput]]:
    """Return the inputs of two steps side by side, first data, then weights: by pairs, by argument, else in order."""
    facing: list[tuple[StepInput, StepInput]] = []
    remaining: list[tuple[list[StepInput], list[StepInput]]] = []
    for one, other in ((multiplied_data(a, b), multiplied_data(b, a)), (list(a.weights), list(b.weights))):
        for right in list(other):
            left = next((left for left in one if pairs.are_paired(left.value, right.value)), None)
            swappable = (
                b.name in COMMUTATIVE or right.is_weight or (left is not None and left.argument == right.argument)
            )
            if left is not None and (swappable or a.name != b.name):
                facing.append((left, right))
                one.remove(left)
                other.remove(right)
        for right in list(other):
            left = next((left for left in one if left.argument == right.argument and left.memory == right.memory), None)
            if left is not None and a.name == b.name:
                facing.append((left, right))
                one.remove(left)
                other.remove(right)
        if a.unrecorded or b.unrecorded:  # its inputs are all values at hand: one without a partner says nothing
            continue
        facing += zip(one, other)
        remaining.append((one[len(other) :], other[len(one) :]))
    if not remaining:
        return facing
    (data_a, data_b), (weights_a, weights_b) = remaining  # a buffer on one side may be computed on the other
    return [*facing, *zip(data_a, weights_b), *zip(weights_a, data_b)]


def multiplied_data(step: Step, other: Step) -> list[StepInput]:
    """Return the data of a step: only the factors if it adds an operand to a product and the other step does not."""
    data = list(step.data)
    return data[1:] if step.name in BIAS_FIRST and other.name not in BIAS_FIRST and len(data) == 3 else data


def pair_between(pairs: Pairs) -> None:
    """Pair the steps that are left between two pairs, where their operations, sizes and order agree."""
    chain = _longest_ordered([(pair.a, index) for index, pair in sorted(pairs.steps.items())])
    last_a = last_b = -1
    for stop_a, stop_b in [*chain, (len(pairs.a.steps), len(pairs.b.steps))]:
        one = _unpaired_steps(pairs.a, last_a, stop_a, pairs.steps_of_a)
        other = _unpaired_steps(pairs.b, last_b, stop_b, pairs.steps)
        if one and other:
            for left, right in aligned_pairs(one, other, _score, _sizes_of, _kind_of):
                if not _join_others(pairs, left, right):
                    pair_products(pairs, left, right, "order", 0.6)
        last_a, last_b = stop_a, stop_b


def _join_others(pairs: Pairs, a: Step, b: Step) -> bool:
    """Does one of two steps that join values join one whose partner the other step does not join?"""
    if a.name not in COPYING or len(a.data) < 2:
        return False
    numbers_a, numbers_b = ([run.root(given.value).number for given in step.data] for run, step in _sides(pairs, a, b))
    partners_a = [pairs.values_of_a.get(number) for number in numbers_a]
    partners_b = [pair.a for number in numbers_b if (pair := pairs.values.get(number)) is not None]
    return any(number is not None and number not in numbers_b for number in partners_a) or any(
        number not in numbers_a for number in partners_b
    )


def _sides(pairs: Pairs, a: Step, b: Step) -> tuple[tuple[StepList, Step], tuple[StepList, Step]]:
    return (pairs.a, a), (pairs.b, b)


def _unpaired_steps(run: StepList, start: int, stop: int, paired: Container[int]) -> list[Step]:
    return [
        step
        for step in run.steps[start + 1 : stop]
        if step.index not in paired and step.outputs and not step.transparent
    ]


def _sizes_of(step: Step) -> tuple[object, ...]:
    return family(step.name), *result_sizes(step)


def _kind_of(step: Step) -> tuple[str, int]:
    return family(step.name), step.outputs[0].numel


def _score(a: Step, b: Step) -> float:
    """Return how alike two operations of one kind are."""
    one, other = a.outputs[0], b.outputs[0]
    if not interchangeable(a, b):
        return 0.0
    score = 1.0 + (one.dtype in EPS and other.dtype in EPS) + (a.name == b.name)
    error = error_between(one.stats, other.stats)
    return score + (1.0 if error is not None and error < 1e-3 else 0.0)


def _longest_ordered(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of pairs, given in the order of b, that is in order on both sides."""
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
