"""Operations of a in the place of those of b, wherever b begins to lack what a has, until b returns what a returns.

Values face each other by their elements alone, whatever is paired. Behind one edit the next place is looked for, so
that a fault in a function that runs in all layers is repaired in all of them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from fxdebug.capture.torch_state.module_members import buffers_of, parameters_of
from fxdebug.operators.names import FACTORIES, PICKING, TRANSPARENT, canonical
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.facing_values import FacingValues, Made, RunOfValues, layouts_for
from fxdebug.repair.rerun.lost_values import Known, known, starts_of
from fxdebug.repair.rerun.replaced_operations import Place, Ran, name_of, tensors_in
from fxdebug.repair.rerun.replayed_run import KeptOperations, writes
from fxdebug.repair.trials.edit_parts import ComputedAnew, Earlier, Part, Source

MOST_STEPS = 16  # of both sides together that compute: more say nothing of a cause
MOST_LEFT_OUT = 4  # of these, where a computes nothing
MOST_TRIES = 128  # at one place
MOST_PLACES = 64
MOST_RUNS = 16  # of a model, where its operations played again say nothing: it writes to its tensors
MOST_ENDS = 24  # operations from where b begins to lack what a has
MOST_STARTS = 4  # that are repaired together: queries, keys and values
MOST_AT_ONCE = 32  # tries, of which the best one is taken
MOST_TOGETHER = 5  # ways for each of these
MOST_BEHIND = 64  # operations behind an edit in which values of a are looked for

Names: TypeAlias = tuple[str, ...]
Both: TypeAlias = tuple[Names, Names]


@dataclass(frozen=True)
class Region:
    """Operations of a in the place of those of b that make a value: ``wanted`` is a's, and ``own`` that of b.

    ``weights`` are those of a that b has not, by an operation and which of its tensors. ``names`` are those of the
    operations of both that compute, and ``size`` is how many these are, with the weights.
    """

    of_a: tuple[Place, ...]
    of_b: tuple[Place, ...]
    wanted: Made
    own: Made
    weights: tuple[tuple[Place, int], ...]
    names: Both
    size: int
    part: Part

    @property
    def ends_alike(self) -> bool:
        """Do both end with the same operation?"""
        return self.names[0][-1:] == self.names[1][-1:] != ()


class RegionsInTurn:
    """Look for the regions of a that have to stand in the place of those of b, one after the other."""

    def __init__(self, runs: EditedRuns, until: float) -> None:
        self._runs, self._until = runs, until
        self.regions: list[Region] = []
        self.untold: list[Region] = []  # of which nothing is known without a run: the smallest, where none is found

    def repaired(self) -> bool:
        """Does b return what a returns with the regions that are found then?"""
        return any(self.behind_each())

    def behind_each(self) -> Iterator[bool]:
        """Yield behind the regions of each turn whether b then returns what a returns; ends where none is found."""
        a, b = self._runs.kept("a"), self._runs.kept("b")
        if a is None or b is None:
            return
        one, model = RunOfValues(a), self._runs.a.model
        weights = set() if model is None else {id(x) for x in (*parameters_of(model), *buffers_of(model))}
        of_a = FacingValues(one)
        while b is not None and len(self.regions) < MOST_PLACES and time.monotonic() < self._until:
            before, own = [region.names for region in self.regions], RunOfValues(b)
            turn = _Turn(one, of_a, own, b, before, weights, self._runs.are_returned)
            found = turn.next(self._until)
            if not found:
                self.untold = turn.smallest() if not self.regions else []
                return
            self.regions += found
            b = b.behind({region.part.place: partial(turn.replaced, region) for region in found})
            if b is not None:
                yield self._runs.are_returned(b.returned)


class _Turn:
    """A run of b with some regions replaced: where it begins to lack what a has, and what may stand there."""

    def __init__(
        self,
        a: RunOfValues,
        of_a: FacingValues,
        b: RunOfValues,
        kept: KeptOperations,
        before: Sequence[tuple[Names, Names]],
        weights: Set[int],
        are_returned: Callable[[Sequence[Tensor]], bool],
    ) -> None:
        self._are_returned = are_returned
        self._a, self._b, self._kept, self._before, self._weights = a, b, kept, before, weights
        self._in_a = of_a
        self._says = [any(each) for each in b.known]
        self._first: dict[Made, Made] = {}  # what b has of a, and where it is made first
        for number, results in enumerate(b.results):
            for which, own in enumerate(results):
                for made in of_a.find(own):
                    self._first.setdefault(made, Made(number, which))
        self._given = {made for own in b.given for made in of_a.find(own)}
        self._known = [_are_known(x, values, of_a) for x, values in zip(b.results, b.known)]
        of_b = {*self._given, *self._first}
        self._has_a = [
            any(values) and all(Made(number, which) in of_b for which, value in enumerate(values) if value)
            for number, values in enumerate(a.known)
        ]
        self._starts_of_a = _starts(a, self._has_a, [any(each) for each in a.known])[: 2 * MOST_STARTS]

    def next(self, until: float) -> list[Region]:
        """Return the regions behind which b has most values of a that it has not before; empty where there are none."""
        starts = _starts(self._b, self._known, self._says)[:MOST_STARTS] or self._returned()
        each = [self._regions(start)[:MOST_TRIES] for start in starts]
        in_turn = [x for regions in itertools.zip_longest(*each) for x in regions if x is not None]
        alone = [(way,) for region in in_turn for way in self._ways(region)][: 2 * MOST_TRIES]
        several = itertools.product(*[regions[:MOST_TOGETHER] for regions in each]) if len(each) > 1 else ()
        together = sorted(several, key=lambda some: sum(x.size for x in some))
        as_before = [some for some in (*together, *alone) if all(x.names in self._before for x in some)]
        for at in range(0, max(len(alone), len(together)), MOST_AT_ONCE):
            for tries in ([] if at else as_before, *(some[at : at + MOST_AT_ONCE] for some in (alone, together))):
                best: tuple[int, list[Region]] = (0, [])
                for regions in tries:
                    if time.monotonic() > until or (best[1] and tries is as_before):
                        break
                    places, wanted = {x.part.place for x in regions}, {x.wanted for x in regions}
                    is_new = len(places) == len(wanted) == len(regions)
                    if is_new and (count := self._progress(regions)) > best[0]:
                        best = count, list(regions)
                if len(best[1]) > 1:
                    return self._needed([self._laid_out(region, best[1]) for region in best[1]])
                if best[1]:
                    return best[1]
        return []

    def smallest(self) -> list[Region]:
        """Return the smallest regions where b begins to lack what a has."""
        starts = _starts(self._b, self._known, self._says)[:MOST_STARTS]
        found = [region for start in starts for region in self._regions(start)]
        return sorted(found, key=lambda region: region.size)[:MOST_RUNS]

    def _returned(self) -> list[int]:
        """Return the operations that make what b returns, where a has all values of b: it makes something of them."""
        own = {id(x) for x in self._kept.returned}
        return [at for at, results in enumerate(self._b.results) if any(id(x) in own for x in results)][-1:]

    def _laid_out(self, region: Region, among: Sequence[Region]) -> Region:
        """Return a region with the order of dimensions behind which b has most of a's values: sizes may be alike."""
        others = [x for x in among if x is not region]
        return max(self._ways(region), key=lambda way: self._progress([way, *others]))

    def _ways(self, region: Region) -> list[Region]:
        one, other = (run.results[x.number][x.which] for run, x in ((self._a, region.wanted), (self._b, region.own)))
        return [replace(region, part=replace(region.part, order=order)) for order in layouts_for(one, other)]

    def _needed(self, regions: list[Region]) -> list[Region]:
        """Return some regions without those that nothing changes without."""
        if len(regions) < 2:
            return regions
        most = self._progress(regions)
        for region in regions:
            rest = [x for x in regions if x is not region]
            if self._progress(rest) >= most:
                return self._needed(rest)
        return regions

    def replaced(self, region: Region, ran: Ran) -> Any:
        """Return the result of an operation of b with a's value in the place of its own."""
        own = self._b.results[region.own.number][region.own.which]
        wanted = self._a.results[region.wanted.number][region.wanted.which]
        new = wanted.permute(region.part.order).reshape(own.shape).to(own.dtype)
        results = ran.result
        if isinstance(results, Tensor):
            return new
        return type(results)([new if at == region.own.which else x for at, x in enumerate(results)])

    def _progress(self, regions: Sequence[Region]) -> int:
        """Return how many of a's values are then behind regions that b has not, or whether b returns the same."""
        edits: dict[Place, Callable[[Ran], Any]] = {x.part.place: partial(self.replaced, x) for x in regions}
        own = {id(x) for region in regions for x in self._b.results[region.own.number]}
        count = 0
        for ran, changed in self._kept.changed_by(edits, MOST_BEHIND):
            if any(id(x) in own for x in tensors_in(ran.result)) or not _computes(ran):
                continue
            found = (made for x in changed if known(x) is not None for made in self._in_a.find(x))
            count += any(made.number >= 0 and not self._has_a[made.number] for made in found)
        ends = {number for region in regions for number in self._b.behind(region.own.number)[1:]}
        if any(_computes(self._b.operations[number][1]) for number in ends):
            return count
        behind = self._kept.behind(edits)
        return int(behind is not None and self._are_returned(behind.returned))

    def _regions(self, start: int) -> list[Region]:
        """Return the regions that may stand where b begins to lack what a has: those as before, then small ones."""
        found: list[Region] = []
        lost = sorted({end for start in self._starts_of_a for end in self._a.behind(start)[:MOST_ENDS]})
        ends = (end for end in self._b.behind(start) if self._says[end] and not writes(self._b.operations[end][1]))
        candidates = (start, *self._b.parents[start])
        before = [at for at in candidates if self._known[at] and self._says[at]]
        for end in (*before, *itertools.islice(ends, MOST_ENDS)):
            of_b = [] if end in before else self._since_known(end)
            if of_b is None or self._b.operations[end][0] is None:
                continue
            for number, (at, own) in itertools.product(lost, enumerate(self._b.results[end])):
                for which, wanted in enumerate(self._a.results[number]):
                    both = self._a.known[number][which], self._b.known[end][at]
                    if wanted.numel() == own.numel() and all(both):
                        found += self._region(Made(number, which), Made(end, at), of_b)
        return sorted(found, key=lambda each: (each.names not in self._before, each.size - each.ends_alike))

    def _region(self, wanted: Made, own: Made, of_b: list[int]) -> Iterator[Region]:
        end = own.number + (not of_b)  # what is put behind a value may be made of that
        region = self._at_hand(wanted.number, end)
        if region is None:
            return
        of_a, weights = region
        size = self._count(self._a, of_a) + self._count(self._b, of_b) + len(weights)
        one, other = self._a.results[wanted.number][wanted.which], self._b.results[own.number][own.which]
        place, orders = self._b.operations[own.number][0], layouts_for(one, other)
        operations = self._computed_anew(of_a, end)
        is_view = not self._count(self._a, of_a)  # what b has already, in the place of what it makes of that
        if size > MOST_STEPS or place is None or operations is None or (is_view and size > MOST_LEFT_OUT) or not orders:
            return
        which = _which(self._a, wanted), _which(self._b, own)
        names = self._names(self._a, of_a), self._names(self._b, of_b)
        places = self._places(self._a, of_a), self._places(self._b, of_b)
        own_weights = tuple(
            [(at, slot) for number, slot in weights if (at := self._a.operations[number][0]) is not None]
        )
        part = Part(place, None, None, region=operations, results=which, order=orders[0])
        yield Region(*places, wanted, own, own_weights, names, size, part)

    def _since_known(self, end: int) -> list[int] | None:
        """Return the operations of b that make a value since those that a has; ``None`` where they are too many."""
        found, pending = {end}, [end]
        while pending:
            for parent in self._b.parents[pending.pop()]:
                is_known = (self._known[parent] and self._says[parent]) or parent in self._b.constants
                if parent not in found and not is_known:
                    found.add(parent)
                    pending.append(parent)
            if len(found) > 4 * MOST_STEPS:
                return None
        return sorted(found) if self._count(self._b, found) < MOST_STEPS else None

    def _at_hand(self, number: int, before: int) -> tuple[list[int], list[tuple[int, int]]] | None:
        """Return the operations of a that make a value of what b has by then, and the weights that it has not."""
        found, pending, weights = {number}, [number], dict[int, tuple[int, int]]()  # by the identity of a tensor
        while pending:
            at = pending.pop()
            for slot, (tensor, maker) in enumerate(self._a.inputs[at]):
                made = self._a.made(at, slot)
                if self._source(made, before) is not None or made.number in self._a.constants:
                    continue
                if maker is None and made not in self._given:
                    if id(tensor) in self._weights:
                        weights.setdefault(id(tensor), (at, slot))
                    elif tensor.is_floating_point():
                        return None  # what made it was not recorded
                elif maker is not None and maker.number not in found:
                    found.add(maker.number)
                    pending.append(maker.number)
            if len(found) > 4 * MOST_STEPS:
                return None
        return (sorted(found), list(weights.values())) if self._count(self._a, found) < MOST_STEPS else None

    def _source(self, made: Made, before: int) -> Made | None:
        """Return what makes a value of a in b before an operation; ``None`` where nothing does."""
        found = self._first.get(made)
        return found if found is not None and found.number < before else None

    def _computed_anew(self, of_a: Sequence[int], before: int) -> tuple[ComputedAnew, ...] | None:
        """Return operations of a as they are computed from values of b; ``None`` where these have no places."""
        numbers, found = {number: at for at, number in enumerate(of_a)}, []
        for number in of_a:
            place = self._a.operations[number][0]
            own: list[tuple[int, Source]] = []
            earlier: list[tuple[int, Earlier]] = []
            if place is None:
                return None
            for slot, (_, maker) in enumerate(self._a.inputs[number]):
                made = self._source(self._a.made(number, slot), before)
                if maker is not None and maker.number in numbers:
                    earlier.append((slot, Earlier(numbers[maker.number], _which(self._a, maker), ())))
                elif made is not None:
                    there = self._b.operations[made.number][0]
                    if there is None:
                        return None
                    own.append((slot, Source(there, _which(self._b, made))))
            found.append(ComputedAnew(place, tuple(own), tuple(earlier)))
        return tuple(found)

    @staticmethod
    def _places(run: RunOfValues, numbers: Sequence[int]) -> tuple[Place, ...]:
        return tuple([place for number in numbers if (place := run.operations[number][0]) is not None])

    @staticmethod
    def _count(run: RunOfValues, numbers: Sequence[int] | set[int]) -> int:
        return sum(_computes(run.operations[number][1]) for number in numbers)

    @staticmethod
    def _names(run: RunOfValues, numbers: Sequence[int]) -> Names:
        return tuple([canonical(name_of(ran)) for number in numbers if _computes(ran := run.operations[number][1])])


def _which(run: RunOfValues, made: Made) -> int | None:
    """Return which of several results a tensor is; ``None`` where it is the only one."""
    return None if isinstance(run.operations[made.number][1].result, Tensor) else made.which


def _are_known(tensors: Sequence[Tensor], values: Sequence[Known | None], there: FacingValues) -> bool:
    """Has the other run what an operation returns: not only the indices of what was chosen?"""
    told = [x for x, value in zip(tensors, values) if value is not None]
    return all(there.find(x) for x in told) if told else any(there.find(x) for x in tensors)


def _starts(run: RunOfValues, known_there: Sequence[bool], says: Sequence[bool]) -> list[int]:
    of_a = [is_known and tells for is_known, tells in zip(known_there, says)]
    return starts_of(run.parents, of_a, says, run.constants)


def _computes(ran: Ran) -> bool:
    return canonical(name_of(ran)) not in _NOT_COUNTED


_NOT_COUNTED = TRANSPARENT | PICKING | FACTORIES | {"setitem"}
