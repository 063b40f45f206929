"""Try operations of b that take or return the right things in another order: exchanged, or repeated the other way.

The values of both orders have the same statistics, and a may have other operations there, so that nothing in two runs
says which is right: an order that makes b return what a returns is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.api.comparison import Comparison
from fxdebug.api.rerun.edited_runs import EditedRuns
from fxdebug.api.trials.edit_parts import Part, PlannedEdit, place_in
from fxdebug.api.trials.edits_of_operations import NoEdit, is_inplace, tensors_of, with_tensors
from fxdebug.api.trials.tried_repairs import first_repair, is_settled, proven_at
from fxdebug.capture.pausing.replaced_operations import Ran
from fxdebug.comparison.diagnosis.region import region_of
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import Row
from fxdebug.comparison.steps import Step

MOST_RUNS = 24
MOST_PLACES = 64  # of one line
NEAR = 12  # operations before and after the first finding

Change = Callable[[Ran], Any]


def told_of_other_orders(found: Comparison, runs: EditedRuns, until: float) -> Comparison | None:
    """Return a comparison that names an operation of b that takes or returns things in another order than a has them.

    ``None`` where a finding is proven or names a weight or an order already, and where no such order makes b return
    what a returns. No run begins after ``until``.
    """
    first = found.first
    if first is None or first.kind == "weights" or is_settled(found.findings):
        return None
    if first.kind == "wiring" and "another order" in first.because:
        return None  # it is told already
    pairs, _ = runs.pairs()
    tries = itertools.islice(_tries(pairs, first), MOST_RUNS)
    return first_repair(found, runs, ((each.edit, partial(each.row, first)) for each in tries), until)


@dataclass(frozen=True)
class _Order:
    """An operation of b in all places of its line, with what is put into another order there."""

    steps: tuple[Step, ...]
    told: str  # with the operation in place of {}
    change: Change

    @property
    def edit(self) -> PlannedEdit:
        """The edit of b."""
        return PlannedEdit(
            "", tuple([Part(place_in(step), None, partial(_changed, self.change)) for step in self.steps])
        )

    def row(self, shown: Row) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        step = self.steps[0]
        more = len(self.steps) - 1
        places = f", and at {more} more place{'s' * (more > 1)} of this line" if more else ""
        return proven_at(shown, step, "wiring", self.told.format(step.op), f"{step.op} the other way round{places}")


def _tries(pairs: Pairs, first: Row) -> Iterator[_Order]:
    """Yield the orders of the operations that the first finding depends on since b equals a, and of those around it.

    Two values that are taken for each other show where each is made, before what takes them. The last ones come first.
    """
    if first.b is None:
        return
    region = () if first.b.value is None else region_of(pairs.b, first.b.value, pairs.is_firm, through=True).steps
    inside = {call.index for call in first.b.call.walk()}
    around = [s for s in pairs.b.steps if s.call.index in inside and abs(s.index - first.position) <= NEAR]
    steps = {s.index: s for s in (*region, *around)}
    for _, step in sorted(steps.items(), reverse=True):
        for told, change in _ORDERS.get(step.name, ()):
            line = [s for s in pairs.b.steps if s.node.source == step.node.source and s.op == step.op]
            several = tuple(line) if step.node.source is not None and 1 < len(line) <= MOST_PLACES else ()
            for chosen in dict.fromkeys([several or (step,), (step,)]):
                yield _Order(chosen, told, change)


def _changed(change: Change, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    if is_inplace(ours):
        raise NoEdit
    made = change(ours)
    if isinstance(made, Tensor) and made.shape != ours.result.shape:
        raise NoEdit
    return made


def _operands_exchanged(ran: Ran) -> Any:
    """Compute an operation with its last two tensors of one shape exchanged."""
    tensors = tensors_of(ran)
    if len(tensors) < 2 or tensors[-1].shape != tensors[-2].shape or tensors[-1].dtype != tensors[-2].dtype:
        raise NoEdit
    last = len(tensors) - 1
    args, kwargs = with_tensors(ran, {last - 1: tensors[last], last: tensors[last - 1]})
    return ran.function(*args, **kwargs)


def _results_exchanged(ran: Ran) -> Any:
    """Return the two results of an operation, of one shape, the other way round."""
    results = ran.result
    if not isinstance(results, (tuple, list)) or len(results) != 2 or results[0].shape != results[1].shape:
        raise NoEdit
    return [results[1], results[0]] if isinstance(results, list) else (results[1], results[0])


def _repeated_otherwise(ran: Ran) -> Any:
    """Return the repetition of a vector, or along a single dimension, with each element, or all elements, in turn."""
    given, made = tensors_of(ran)[0], ran.result
    grown = [at for at, size in enumerate(made.shape) if given.ndim == made.ndim and given.shape[at] != size]
    if len(grown) != 1 or given.shape[grown[0]] < 2:
        raise NoEdit
    (along,) = grown
    size = given.shape[along]
    in_turn = ran.function.__name__ == "repeat_interleave"
    apart = made.unflatten(along, (size, -1) if in_turn else (-1, size))
    return apart.transpose(along, along + 1).flatten(along, along + 1)


_EXCHANGED = "the two operands of {} stand the other way round than in a", _operands_exchanged
_RETURNED = "the two results of {} are taken the other way round than in a", _results_exchanged
_IN_TURN = "each element is repeated in turn in b, all of them in turn in a", _repeated_otherwise
_ALL = "all elements are repeated in turn in b, each of them in turn in a", _repeated_otherwise
_ORDERS: dict[str, tuple[tuple[str, Change], ...]] = {
    **dict.fromkeys(["stack", "cat", "where", "sub", "div", "pow", "atan2", "lerp"], (_EXCHANGED,)),
    **dict.fromkeys(["chunk", "split", "unbind", "meshgrid"], (_RETURNED,)),
    **dict.fromkeys(["repeat", "tile"], (_ALL,)),
    "repeat_interleave": (_IN_TURN,),
}
