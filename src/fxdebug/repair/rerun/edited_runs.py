"""Make two recorded runs again with operations replaced, and measure what each returns then against the other one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import Tensor, nn

from fxdebug.capture.runs.same_start import state_restored
from fxdebug.comparison.compare_traces import pair_traces
from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.pairing.name_mapping import NameMapping
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import FxDebugError
from fxdebug.repair.rerun.lost_values import LostValues
from fxdebug.repair.rerun.replaced_operations import Place, Ran, ReplacedOperations
from fxdebug.repair.rerun.replayed_run import KeptOperations

MOST_BEHIND = 24  # operations behind an edit in which values of a are looked for


IsWanted: TypeAlias = Callable[[Tensor], bool]


class Returned(NamedTuple):
    """The error of one returned value against the one that faces it, and the error that rounding explains."""

    error: float
    tolerance: float


@dataclass(frozen=True)
class RunAgain:
    """A recorded run, and what makes it again with operations replaced: its model, or its graphs without one.

    ``run`` returns the tensors that the run then returns, in the order of those in the trace; ``None`` for one that
    cannot be told any more.
    """

    trace: TraceData
    run: Callable[[ReplacedOperations], Sequence[Tensor | None]]
    model: nn.Module | None = None


@dataclass
class EditedRuns:
    """Runs of two sides with operations replaced; ``plain`` is the comparison of both as they were recorded.

    Models begin each run in the state that they have now, and have it again afterwards. ``again`` records b with
    operations replaced, and compares that run with a, where whole traces can be had.
    """

    a: RunAgain
    b: RunAgain
    plain: ComparisonData
    mapping: NameMapping | None = None
    again: Callable[[ReplacedOperations], tuple[TraceData, ComparisonData]] | None = None
    _paired: tuple[Pairs, Meter] | None = field(default=None, repr=False)
    _again: dict[int, dict[int, Tensor | None]] = field(default_factory=dict, repr=False)  # by the side
    _lost: dict[str, LostValues] = field(default_factory=dict, repr=False)  # by the side
    _begins: dict[str, list[Place]] = field(default_factory=dict, repr=False)  # by the side
    _kept: dict[int, KeptOperations | None] = field(default_factory=dict, repr=False)  # by the side

    def see_a(self, stepper: ReplacedOperations) -> None:
        """Run side a with a look at some of its operations."""
        kept = self._operations(self.a)
        if kept is not None and stepper.changes.keys() <= kept.places:
            kept.with_edits(stepper.changes)
            return
        with state_restored(*self.models):
            self.a.run(stepper)

    def run(self, side: Literal["a", "b"], stepper: ReplacedOperations) -> list[Returned] | None:
        """Return how far what a side returns is from the other one's, with operations replaced.

        Empty where nothing faces each other; ``None`` where it raises, or returns what cannot be compared.
        """
        own = self.a if side == "a" else self.b
        kept = self._operations(own)
        if kept is not None and self._is_whole(own):
            replayed = kept.with_edits(stepper.changes)
            found = None if replayed.tensors is None else self._measured(side, replayed.tensors)
            if replayed.sure and not (found and all(each.error <= each.tolerance for each in found)):
                stepper.made |= replayed.made
                return found
        with state_restored(*self.models):
            try:
                tensors = own.run(stepper)
            except FxDebugError:
                raise
            except Exception:  # of the model, with an operation that was replaced
                return None
        return self._measured(side, tensors)

    def _measured(self, side: Literal["a", "b"], tensors: Sequence[Tensor | None]) -> list[Returned] | None:
        """Return how far tensors that a side returns are from those of the other one."""
        own, other = (self.a, self.b) if side == "a" else (self.b, self.a)
        numbers = [value.number for value in own.trace.root.outputs or ()]
        if len(numbers) != len(tensors):
            return None
        new = dict(zip(numbers, tensors))
        meter, found = self.pairs()[1], list[Returned]()
        for row in self.plain.outputs:
            a, b = (None if each is None else each.value for each in (row.a, row.b))
            if not row.measured or a is None or b is None:
                continue
            changed, kept = (a, b) if side == "a" else (b, a)
            if changed.number not in new:
                return None
            both = new[changed.number], self._plain(other, kept)
            if both[0] is None or both[1] is None:
                continue
            error = meter.of_tensors(a, b, *(both if side == "a" else both[::-1]))
            if error is None:
                return None
            found.append(Returned(error, row.tolerance))
        return found

    def behind(
        self, edits: Mapping[Place, Callable[[Ran], Any]], trace: TraceData, plain: ComparisonData
    ) -> EditedRuns:
        """Return the runs with operations of b replaced in all of them: what was recorded so, and its comparison."""
        own, again, before = self.b, self.again, ReplacedOperations(edits).as_in(self.b.trace)

        def behind(stepper: ReplacedOperations) -> ReplacedOperations:
            return stepper.as_in(trace).behind(before)

        b = RunAgain(trace, lambda stepper: own.run(behind(stepper)), own.model)
        return EditedRuns(
            self.a, b, plain, self.mapping, None if again is None else lambda stepper: again(behind(stepper))
        )

    def kept(self, side: Literal["a", "b"]) -> KeptOperations | None:
        """Return the operations of a side as they ran; ``None`` where they are too large, or no model makes them."""
        return self._operations(self.a if side == "a" else self.b)

    def are_returned(self, tensors: Sequence[Tensor]) -> bool:
        """Is what b returns then what a returns?"""
        found = self._measured("b", tensors)
        return found is not None and found != [] and all(each.error <= each.tolerance for each in found)

    def ran(self, side: Literal["a", "b"]) -> Mapping[Place, Ran]:
        """Return all operations of a side as they ran; none where they are not kept."""
        kept = self._operations(self.a if side == "a" else self.b)
        return {} if kept is None else {place: ran for place, ran in kept.operations if place is not None}

    def is_progress(
        self,
        edits: Mapping[Place, Callable[[Ran], Any]],
        value: Tensor | None = None,
        is_wanted: IsWanted | None = None,
        side: Literal["a", "b"] = "b",
    ) -> bool:
        """Has b values of a with edits that it has not without, right behind these, or another one that is wanted?

        Each edit is of what b itself computed by then: with tensors of a, anything would be. With ``side`` a the same
        is asked of a.
        """
        kept, lost = self._operations(self.b if side == "b" else self.a), self.lost_of(side)
        if kept is None or lost is None:
            return False
        for ran, changed in kept.changed_by(edits, MOST_BEHIND):
            if any(map(lost.has, changed)):
                return True
            if ran.result is value and is_wanted is not None and changed and is_wanted(changed[0]):
                return True
        return False

    def lost_of(self, side: Literal["a", "b"]) -> LostValues | None:
        """Return what a side has not, and the other one has; ``None`` where the operations of either are not kept."""
        one, other = self._operations(self.a), self._operations(self.b)
        if side not in self._lost and one is not None and other is not None:
            self._lost[side] = LostValues(one, other) if side == "b" else LostValues(other, one)
        return self._lost.get(side)

    def first_lost(self, side: Literal["a", "b"]) -> list[Place]:
        """Return the places of a side where what the other has not begins, and around it; none if that is not known."""
        own, lost = self._operations(self.b if side == "b" else self.a), self.lost_of(side)
        if side not in self._begins and own is not None and lost is not None:
            places = [own.operations[number][0] for number in lost.begins(own)]
            self._begins[side] = [place for place in places if place is not None]
        return self._begins.get(side, [])

    def _is_whole(self, side: RunAgain) -> bool:
        """Were all operations of a side recorded? What others make of a new value, a run of the model alone shows."""
        pairs, _ = self.pairs()
        return not any(step.unrecorded for step in (pairs.a if side is self.a else pairs.b).steps)

    def _operations(self, side: RunAgain) -> KeptOperations | None:
        """Return the operations of a side as they ran; ``None`` where they are too large, or no model makes them."""
        if id(side) not in self._kept:
            kept = KeptOperations()
            self._kept[id(side)] = None
            if side.model is not None:
                with state_restored(*self.models), contextlib.suppress(Exception):
                    side.run(ReplacedOperations({}, kept))
                    shapes = [value.shape for value in side.trace.root.outputs or ()]
                    if not kept.too_large and [tuple(each.shape) for each in kept.returned] == shapes:
                        self._kept[id(side)] = kept
        return self._kept[id(side)]

    def pairs(self) -> tuple[Pairs, Meter]:
        """Return the pairs of the recorded runs, and what measures them."""
        if self._paired is None:
            meter = Meter(self.a.trace, self.b.trace)
            self._paired = pair_traces(self.a.trace, self.b.trace, self.mapping, meter), meter
        return self._paired

    def _plain(self, side: RunAgain, value: Value) -> Tensor | None:
        """Return what a side returned: as it was kept, else by a run without edits, once."""
        if value.saved is not None:
            return side.trace.tensor(value)
        known = self._again.get(id(side))
        if known is None:
            with state_restored(*self.models):
                tensors = side.run(ReplacedOperations({}))
            known = dict(zip([each.number for each in side.trace.root.outputs or ()], tensors))
            self._again[id(side)] = known
        return known[value.number]

    @property
    def models(self) -> list[nn.Module]:
        """The models of the sides that have one."""
        return [side.model for side in (self.a, self.b) if side.model is not None]
