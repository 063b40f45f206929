"""Operations that stand before others where they should stand behind them, or behind them where before.

A bias that is added behind the activation, a mean of heads taken before it, a choice before the softmax: both orders
have the same operations, with the same settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor

from fxdebug.comparison.diagnosis.cause import listed
from fxdebug.comparison.steps import Step, StepList
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import FACTORIES
from fxdebug.repair.candidates.variations.list_of_all import may_be_varied
from fxdebug.repair.candidates.variations.variation import NEEDED, Change, Variation
from fxdebug.repair.rerun.replaced_operations import Place, Ran
from fxdebug.repair.trials.edit_parts import place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of

MOST_PASSED = 5  # operations that one is moved past: a bias and an activation with the views between them

Ways: TypeAlias = tuple[tuple[Step, Variation], ...]


class OtherOrders:
    """The ways to move operations of a run past those that use their results; ``ran`` are operations as they ran."""

    def __init__(self, run: StepList, ran: Mapping[Place, Ran]) -> None:
        self._run, self._ran = run, ran

    def rows(self, steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
        """Yield rows of operations of which the first may be meant to be the last, or the last the first."""
        for step in reversed(steps):
            passed = [step]
            while len(passed) <= MOST_PASSED and (after := self._only_user(passed[-1])) is not None:
                passed.append(after)
                if not after.transparent:
                    yield tuple(passed)

    def _only_user(self, step: Step) -> Step | None:
        """Return the operation that alone uses a result, and returns a single one."""
        value = step.outputs[0] if len(step.outputs) == 1 else None
        if value is None or not self._may_be_moved(step):
            return None
        near = self._run.users.get(self._run.root(value).number, ())
        users = [user for user in near if any(given.value.number == value.number for given in user.inputs)]
        user = users[0] if len(users) == 1 and self._may_be_moved(users[0]) else None
        if user is None or [each.dtype for each in user.outputs] != [value.dtype]:
            return None  # before a cast or behind it is another dtype, not another order
        return user

    def _may_be_moved(self, step: Step) -> bool:
        ran = self._ran.get(place_in(step))
        return ran is not None and not step.unrecorded and step.name not in FACTORIES and may_be_varied(step.name, ran)

    def edits(self, row: Sequence[Step]) -> list[Ways]:
        """Return the edits of one place: with the first operation behind all others, and with the last before them."""
        slots = [self._slot(step, before) for before, step in itertools.pairwise(row)]
        first, last, given = row[0], row[-1], self._main_slot(row[0])
        slot = slots[-1]
        if None in slots or slot is None or given is None or first.transparent:
            return []
        named = [listed([step.op for step in part if not step.transparent]) for part in (row[1:], row[:-1])]
        behind, before = f"{first.op} put behind {named[0]}", f"{last.op} put before {named[1]}"
        runs = [self._ran[place_in(step)] for step in (first, last)]
        passed = {step: _passed_on(at) for step, at in zip(row, (given, *slots)) if at is not None}
        told = f"{first.op} stands before {named[0]}{NEEDED}it behind"
        found = [_ways(told, behind, passed, {first: passed[first], last: _behind(runs[0], given)})]
        if len(row) > 2:
            told = f"{last.op} stands behind {named[1]}{NEEDED}it before"
            found.append(_ways(told, before, passed, {first: _before(runs[1], slot, given), last: passed[last]}))
        return found

    def _slot(self, step: Step, before: Step) -> int | None:
        """Return which of its tensors an operation has from another one."""
        made = self._ran[place_in(before)].result
        return next((at for at, x in enumerate(tensors_of(self._ran[place_in(step)])) if x is made), None)

    def _main_slot(self, step: Step) -> int | None:
        """Return which of its tensors an operation passes on where it is left out: the first of the largest ones."""
        data = [(at, given.value) for at, given in enumerate(step.inputs) if not given.is_weight]
        known = [(value.numel, -at) for at, value in data if value.dtype in EPS]
        return -max(known)[1] if known else None


def _ways(told: str, edit: str, passed: Mapping[Step, Change], changes: Mapping[Step, Change]) -> Ways:
    """Return an edit. Beside it stand those that leave out one operation: where that repairs, no order is shown."""
    steps = [step for step in passed if not step.transparent]
    return tuple(
        [
            (
                step,
                Variation(
                    told,
                    edit,
                    changes.get(step, _as_it_is),
                    resizes=True,
                    beside=tuple([passed[step] if step is left_out else _as_it_is for left_out in steps]),
                ),
            )
            for step in steps
        ]
    )


def _as_it_is(ran: Ran) -> Any:
    return ran.result


def _passed_on(slot: int) -> Change:
    """Return what an operation is given, as it is."""

    def change(ran: Ran) -> Any:
        tensors = tensors_of(ran)
        if slot >= len(tensors) or not isinstance(ran.result, Tensor):
            raise NoEdit
        return tensors[slot]

    return change


def _behind(moved: Ran, slot: int) -> Change:
    """Return what another operation makes of the result."""

    def change(ran: Ran) -> Any:
        if not isinstance(ran.result, Tensor):
            raise NoEdit
        return computed_with(moved, {slot: ran.result})

    return change


def _before(moved: Ran, slot: int, given: int) -> Change:
    """Compute an operation with what another one makes of what it is given."""

    def change(ran: Ran) -> Any:
        made = computed_with(moved, {slot: tensors_of(ran)[given]})
        if not isinstance(made, Tensor):
            raise NoEdit
        return computed_with(ran, {given: made})

    return change
