"""All operations of a that compute a value from the last values that b has, too, put in the place of a result of b."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from fxdebug.comparison.diagnosis.region import view_chain
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.data.values import Value
from fxdebug.operators.names import FACTORIES
from fxdebug.repair.rerun.replaced_operations import Place, Ran, is_inplace
from fxdebug.repair.trials.edit_parts import (
    ComputedAnew,
    Earlier,
    Source,
    as_laid_out,
    number_of,
    place_in,
    seen_as_in_a,
)
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of

MOST_OF_REGION = 16  # operations of a in the place of a result of b: more would repair anything


class RegionOfA:
    """The operations of a that compute a value from values that b has by an operation of its own.

    With ``equal_in_b`` a value of b with the same numbers counts as one of a, whatever it is paired with, and weights
    of a that no operation of b is given may be in the region; with ``own_weights`` those of a are, whatever b has.
    """

    def __init__(
        self,
        pairs: Pairs,
        is_equal: Callable[[Value, Value], bool],
        is_constant: Callable[[Step], bool],
        before: Step,
        equal_in_b: Callable[[Value], Value | None] | None = None,
        *,
        own_weights: bool = False,
        most: int = MOST_OF_REGION,
    ) -> None:
        self._pairs, self._is_equal, self._is_constant, self._before = pairs, is_equal, is_constant, before
        self._equal_in_b, self._own_weights, self._most = equal_in_b, own_weights, most
        self.weights: dict[str, None] = {}  # of a, which no operation of b is given
        self._found: dict[int, Step] = {}
        self._tables: dict[int, Step] = {}  # that make constants which b has not: their numbers are taken from a
        self._own: dict[tuple[int, int], tuple[Step, int | None]] = {}

    @property
    def steps(self) -> list[Step]:
        """The operations in execution order."""
        return [self._found[index] for index in sorted(self._found)]

    @property
    def named(self) -> list[Step]:
        """The operations that compute, with those that make the constants among what they are given."""
        known = {**self._tables, **self._found}
        return [known[index] for index in sorted(known) if not known[index].transparent]

    def reaches(self, last: Step) -> bool:
        """Do the operations behind a result of a lead back to what b has, after few of them?"""
        pending = [last]
        while pending:
            step = pending.pop()
            if step.index in self._found:
                continue
            self._found[step.index] = step
            if len(self._found) > self._most or step.unrecorded or not step.outputs:
                return False
            for slot, given in enumerate(step.inputs):
                if given.is_weight and self._own_weights:
                    self.weights[str(given.value.name)] = None
                    continue
                if self._is_at_hand(step, slot, given):
                    continue
                maker = self._pairs.a.maker(given.value)
                if given.is_weight and self._equal_in_b is not None and self._pairs.value_in_b(given.value) is None:
                    self.weights[str(given.value.name)] = None
                    continue
                if given.is_weight or maker is None:
                    return False
                if self._is_constant(maker):
                    self._add_table(maker)
                else:
                    pending.append(maker)
        return True

    def _add_table(self, last: Step) -> None:
        """Add the operations of a that make a constant of constants that b has, too."""
        pending = [last]
        while pending and len(self._tables) < self._most:
            step = pending.pop()
            if step.index not in self._tables and step.name not in FACTORIES:
                self._tables[step.index] = step
                makers = [self._pairs.a.maker(x.value) for x in step.inputs if not self._has(x.value)]
                pending += [maker for maker in makers if maker is not None]

    def _has(self, value: Value) -> bool:
        """Has b a value of a, whenever it is made?"""
        own, root = self._pairs.value_in_b(value), self._pairs.a.root(value)
        return own is not None and self._is_equal(root, own)

    def _is_at_hand(self, step: Step, slot: int, given: StepInput) -> bool:
        """Has b what a step is given by then, with the same numbers?"""
        value, root = self._pairs.value_in_b(given.value), self._pairs.a.root(given.value)
        if value is None or not self._is_equal(root, value):
            value = None if given.is_weight or self._equal_in_b is None else self._equal_in_b(root)
        if value is None:
            return False
        maker = self._pairs.b.maker(value)
        if maker is None or given.is_weight:
            return True  # a weight, or what the model was given
        if maker.index >= self._before.index or maker.unrecorded:
            return False
        self._own[step.index, slot] = maker, number_of(self._pairs.b, value, maker)
        return True

    def _is_given(self, given: StepInput) -> bool:
        """Is it a constant, a weight, or what the model was given?"""
        maker = self._pairs.a.maker(given.value)
        return maker is None or self._is_constant(maker)

    def operations(self, at_site: Callable[[StepList, Step], Step | None]) -> list[ComputedAnew] | None:
        """Return the operations as they are computed anew at a site; ``None`` where it has not all of them."""
        numbers, a = {step.index: number for number, step in enumerate(self.steps)}, self._pairs.a
        found = []
        for step in self.steps:
            here, own, earlier = at_site(a, step), [], []
            if here is None or len(here.inputs) != len(step.inputs):
                return None
            for slot, (given, theirs) in enumerate(zip(step.inputs, here.inputs)):
                views = tuple([place_in(view) for view in view_chain(a, theirs.value)])
                maker, known = a.maker(given.value), self._own.get((step.index, slot))
                if known is not None:
                    source = at_site(self._pairs.b, known[0])
                    if source is None:
                        return None
                    own.append((slot, Source(place_in(source), known[1], views)))
                elif maker is not None and maker.index in numbers:
                    earlier.append((slot, Earlier(numbers[maker.index], number_of(a, given.value, maker), views)))
                elif here is not step and not self._is_given(theirs):
                    return None  # here a has made it of what it was given: in the place of b's it would repair anything
            found.append(ComputedAnew(place_in(here), tuple(own), tuple(earlier)))
        return found


def recomputed(
    operations: Sequence[ComputedAnew],
    which: tuple[int | None, int | None],
    seen: Mapping[Place, Ran],
    own: Callable[[Source], Tensor],
    ours: Ran,
    order: Sequence[int] = (),
) -> Any:
    """Return the result of an operation of b with that of the last of some operations of a, computed from b's values.

    ``which`` says which of the results of a and of b, where one has several, ``order`` how a's dimensions lie in b.
    """
    results: list[Any] = []
    for operation in operations:
        theirs = seen.get(operation.of_a)
        if theirs is None or is_inplace(theirs):
            raise NoEdit
        before = tensors_of(theirs)
        if any(slot >= len(before) for slot, _ in (*operation.own, *operation.earlier)):
            raise NoEdit
        new = {slot: as_laid_out(own(x), before[slot]).to(before[slot].dtype) for slot, x in operation.own}
        for slot, (number, at, views) in operation.earlier:
            result = results[number] if at is None else results[number][at]
            new[slot] = seen_as_in_a(result, [seen[view] for view in views])
        if any(before[slot].shape != tensor.shape for slot, tensor in new.items()):
            raise NoEdit
        results.append(computed_with(theirs, new))
    of_a, of_b = which
    made = results[-1] if of_a is None else results[-1][of_a]
    before = ours.result if of_b is None else ours.result[of_b]
    if not isinstance(made, Tensor) or not isinstance(before, Tensor) or is_inplace(ours):
        raise NoEdit
    if order:
        made = made.permute(tuple(order)).reshape(before.shape).to(before.dtype)
    return made if of_b is None else type(ours.result)([*ours.result[:of_b], made, *ours.result[of_b + 1 :]])
