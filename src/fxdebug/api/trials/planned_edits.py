"""Plan the edits that may undo a finding: at its operation, at others by the pairs of the runs, and all over its line.

An operation of a is put behind or before one of b, or an operation of b is given what that of a is given. All values
are then those of b, as it has them by then: with tensors of a, anything would be repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from fxdebug.api.rerun.edited_runs import EditedRuns
from fxdebug.api.trials.edits_of_operations import (
    EditOfBoth,
    NoEdit,
    edits_of,
    is_inplace,
    op_of,
    place_of,
    tensors_of,
    with_tensors,
)
from fxdebug.capture.pausing.replaced_operations import Place, Ran
from fxdebug.comparison.diagnosis.cause import listed
from fxdebug.comparison.diagnosis.region import view_chain
from fxdebug.comparison.diagnosis.weights.weight_slices import numberless
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import Row
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import FACTORIES

MOST_PLACES = 64  # of a line that runs many times
OF_CODE = frozenset(["values", "missing", "extra", "constant", "shape", "wiring", "dtype"])  # findings that it explains
MOST_OF_REGION = 16  # operations of a in the place of a result of b: more would repair anything


class Source(NamedTuple):
    """The place where b makes a value: an operation, which of its results, if several, and a's views of that."""

    place: Place
    at: int | None = None
    views: tuple[Place, ...] = ()


EditOfPlace: TypeAlias = Callable[[Ran | None, Ran, Mapping[int, Tensor]], Any]
"""Computes an operation of b from that of a, from itself, and from values of b in the place of some of a's."""


class Earlier(NamedTuple):
    """A result of an operation computed anew: which one, which of its results, if several, and a's views of that."""

    operation: int
    at: int | None
    views: tuple[Place, ...]


class Recomputed(NamedTuple):
    """An operation of a computed anew, from values of b and from results before it, by the numbers of its tensors."""

    of_a: Place
    own: tuple[tuple[int, Source], ...]
    earlier: tuple[tuple[int, Earlier], ...]


@dataclass(frozen=True)
class Part:
    """An edit of one place of b, the operation of a that it needs, and the values of b in the place of some of a's.

    ``region`` are several operations of a, of which the last one's result is put in the place of b's.
    """

    place: Place
    of_a: Place | None
    make: EditOfPlace
    own: tuple[tuple[int, Source], ...] = ()  # by the number of the tensor among those that a's operation is given
    region: tuple[Recomputed, ...] = ()

    @property
    def sources(self) -> list[Source]:
        """All values of b that it needs."""
        return [source for _, source in (*self.own, *(own for each in self.region for own in each.own))]

    @property
    def seen_in_a(self) -> set[Place]:
        """All operations of a that it needs, as they ran."""
        views = {view for source in self.sources for view in source.views}
        views |= {view for each in self.region for _, earlier in each.earlier for view in earlier.views}
        return views | {each.of_a for each in self.region} | ({self.of_a} if self.of_a is not None else set())


@dataclass(frozen=True)
class PlannedEdit:
    """An edit in words, of one place of b or of several. ``is_cause``: it undoes what the finding says."""

    words: str
    parts: tuple[Part, ...]
    is_cause: bool = False


@dataclass(frozen=True)
class Sites:
    """The operations of a and b of a finding, and those that the same lines ran otherwise, in execution order."""

    pairs: tuple[tuple[Step, Step], ...]
    at: int  # the finding's own

    @property
    def own(self) -> tuple[Step, Step]:
        """The operations of the finding itself."""
        return self.pairs[self.at]


class EditPlan:
    """Plan edits of findings by the pairs of two plain runs."""

    def __init__(self, runs: EditedRuns) -> None:
        self._pairs, self._meter = runs.pairs()
        self._constants: dict[int, bool] = {}

    def edits(self, row: Row) -> list[PlannedEdit]:
        """Return the edits that may undo a finding, those at one place first."""
        here = place_of(row.b)
        single = [
            PlannedEdit(words, (Part(here, place_of(row.a), partial(_alone, make)),), is_cause)
            for words, make, is_cause in edits_of(row)
            if here is not None
        ]
        sites = self._sites(row)
        if sites is None:
            return single
        alone = Sites((sites.own,), 0)
        planned = [*single, *self._of_pairs(row, alone), *self._after_all(row, alone), *self._of_region(row, alone)]
        if len(sites.pairs) > 1:
            everywhere = [
                replace(edit, parts=tuple([Part(_place(y), _place(x), edit.parts[0].make) for x, y in sites.pairs]))
                for edit in single
            ]
            of_sites = [*self._of_pairs(row, sites), *self._after_all(row, sites), *self._of_region(row, sites)]
            planned += map(_more, [*everywhere, *of_sites])
        elif len(lines := self._line(self._pairs.a, sites.own[0])) > 1:
            every = Sites(tuple([(step, sites.own[1]) for step in lines]), lines.index(sites.own[0]))
            planned += map(_more, self._after_all(row, every))
        return planned

    def _sites(self, row: Row) -> Sites | None:
        """Return the operations that a finding is about, with those of the same lines where they face each other."""
        one, other = (
            None if side is None or side.node is None else run.by_node.get(side.node)
            for run, side in ((self._pairs.a, row.a), (self._pairs.b, row.b))
        )
        if one is None or other is None:
            return None
        lines = self._line(self._pairs.a, one), self._line(self._pairs.b, other)
        found = tuple(zip(*lines)) if len(lines[0]) == len(lines[1]) else ()
        return Sites(found, found.index((one, other))) if (one, other) in found else Sites(((one, other),), 0)

    def _line(self, run: StepList, at: Step) -> list[Step]:
        """Return an operation, or all that its place in its line ran: in several calls, else in a loop of one."""
        source, weights = at.node.source, [given.is_weight for given in at.inputs]
        lines = [] if source is None else [step for step in run.steps if step.node.source == source]
        in_calls = [s for s in lines if _place(s)[1] == _place(at)[1] and _is_alike(s.call.path, at.call.path)]
        in_loop = [s for s in lines if s.op == at.op and [given.is_weight for given in s.inputs] == weights]
        found = in_calls if len(in_calls) > 1 else in_loop
        return found if 1 < len(found) <= MOST_PLACES else [at]

    def _of_pairs(self, row: Row, sites: Sites) -> Iterator[PlannedEdit]:
        """Yield the edits that give an operation of b something else, at all of some sites."""
        one, other = sites.own
        if one.unrecorded or other.unrecorded:
            return
        weights = [at for at, given in enumerate(one.inputs) if given.is_weight]
        if row.kind == "weights" and weights and len(one.inputs) == len(other.inputs):
            words, make = f"{op_of(row.b)} with the weights of a", partial(_given_as_in_a, weights)
            yield from (replace(edit, is_cause=True) for edit in self._edit(words, make, sites, ()))
        for slot, given in enumerate(one.inputs) if row.kind == "missing" else ():
            facing = [at for at, own in enumerate(other.inputs) if self._pairs.are_paired(given.value, own.value)]
            others = [at for at in range(len(one.inputs)) if at != slot]
            if facing and not given.is_weight:
                make = partial(_put_before, slot, facing[0])
                yield from self._edit(f"{op_of(row.a)} of a before {op_of(row.b)}", make, sites, others)
        if row.kind in ("wiring", "missing"):
            words = f"{op_of(row.b)} given what that of a is given"
            wrong = self._wrong(one, other)
            yield from self._edit(words, partial(_given_as_in_a, wrong), sites, wrong) if wrong else ()
            users = list(self._users(one, other)) if len(sites.pairs) == 1 else []
            if len(users) > 1:
                words = "all operations that are given the same as it, given what those of a are given"
                yield PlannedEdit(f"{op_of(row.b)} and {words}", tuple(users))

    def _edit(
        self,
        words: str,
        make: EditOfPlace,
        sites: Sites,
        needed: Sequence[int],
    ) -> Iterator[PlannedEdit]:
        """Yield an edit at all of some sites, where b has what it needs of the inputs of a's operation."""
        known = self._at_hand(needed, sites, [other for _, other in sites.pairs])
        if known is not None:
            sides = zip(sites.pairs, known)
            yield PlannedEdit(words, tuple([Part(_place(y), _place(x), make, own) for (x, y), own in sides]))

    def _after_all(self, row: Row, sites: Sites) -> Iterator[PlannedEdit]:
        """Yield the edits that put some operations of a, which b lacks, behind what b has of their inputs."""
        one = sites.own[0]
        for slot, given in enumerate(one.inputs) if row.kind == "missing" and not one.unrecorded else ():
            value = None if given.is_weight else self._pairs.value_in_b(given.value)
            maker = None if value is None else self._pairs.b.maker(value)
            if value is None or maker is None or maker.unrecorded:
                continue
            makers = self._line(self._pairs.b, maker) if len(sites.pairs) > 1 else [maker]
            others = [at for at in range(len(one.inputs)) if at != slot]
            if len(makers) != len(sites.pairs) or makers[sites.at] is not maker:
                continue
            known = self._at_hand(others, sites, makers)
            if known is not None:
                make = partial(_put_after, slot, self._number(value, maker))
                parts = [Part(_place(y), _place(x), make, own) for (x, _), y, own in zip(sites.pairs, makers, known)]
                yield PlannedEdit(f"{op_of(row.a)} of a after {maker.op}", tuple(parts))

    def _of_region(self, row: Row, sites: Sites) -> Iterator[PlannedEdit]:
        """Yield the edit that puts all of a's operations since what b has, too, in the place of a result of b."""
        other = sites.own[1]
        wanted = self._pairs.value_in_a(other.outputs[0]) if len(other.outputs) == 1 else None
        last = None if wanted is None else self._pairs.a.maker(wanted)
        if row.kind not in OF_CODE or last is None or other.unrecorded:
            return
        region = _Region(self._pairs, self._is_equal, self._is_constant, other)
        if not region.reaches(last):
            return
        parts = []
        for at, (_, place) in enumerate(sites.pairs):
            operations = region.operations(partial(self._at_site, sites, at))
            if operations is None:
                return
            parts.append(Part(_place(place), None, _nothing, region=tuple(operations)))
        names = [step.op for step in region.steps if not step.transparent]
        yield PlannedEdit(f"{listed(names)} of a in the place of {op_of(row.b)}", tuple(parts))

    def _at_site(self, sites: Sites, at: int, run: StepList, step: Step) -> Step | None:
        """Return the operation at another site that stands where one does at a finding's own; ``None`` without one."""
        if len(sites.pairs) == 1:
            return step
        line = self._line(run, step)
        fits = len(line) == len(sites.pairs) and line[sites.at] is step
        return line[at] if fits else None

    def _users(self, one: Step, other: Step) -> Iterator[Part]:
        """Yield the edits that give all operations of a call what those of a are given, in the place of one value."""
        b = self._pairs.b
        inside = {call.index for call in other.call.walk()}
        roots = {b.root(other.inputs[at].value).number for at in self._wrong(one, other)}
        for user in [user for root in sorted(roots) for user in b.users.get(root, ())]:
            partner = self._pairs.step_in_a(user)
            wrong = () if partner is None or user.unrecorded else self._wrong(partner, user)
            if partner is not None and wrong and not user.transparent and user.call.index in inside:
                known = self._at_hand(wrong, Sites(((partner, user),), 0), [other])
                if known is not None:
                    yield Part(_place(user), _place(partner), partial(_given_as_in_a, wrong), known[0])

    def _wrong(self, one: Step, other: Step) -> tuple[int, ...]:
        """Return which inputs of two operations of one kind do not face each other."""
        if one.name != other.name or len(one.inputs) != len(other.inputs):
            return ()
        sides = enumerate(zip(one.inputs, other.inputs))
        return tuple([at for at, (x, y) in sides if not self._pairs.are_paired(x.value, y.value) and not x.is_weight])

    # What b has ----------------------------------------------------------------------------------

    def _at_hand(
        self, needed: Sequence[int], sites: Sites, before: Sequence[Step]
    ) -> list[tuple[tuple[int, Source], ...]] | None:
        """Return for each site where b makes some inputs of a's operation by then; ``None`` where it has them not."""
        found: list[dict[int, Source]] = [{} for _ in sites.pairs]
        for slot in needed:
            given = sites.own[0].inputs[slot]
            value = self._pairs.value_in_b(given.value)
            if value is None:
                if not self._can_be_made(given, before[sites.at], everywhere=len(sites.pairs) > 1):
                    return None
                continue
            maker, own = self._pairs.b.maker(value), self._pairs.a.root(given.value)
            if not self._is_equal(own, value) or (maker is not None and maker.index >= before[sites.at].index):
                return None
            if maker is None or given.is_weight:  # both have the same
                continue
            makers = self._line(self._pairs.b, maker) if len(sites.pairs) > 1 else [maker]
            if len(makers) != len(sites.pairs) or makers[sites.at] is not maker:
                return None
            for at, (step, (one, _)) in enumerate(zip(makers, sites.pairs)):
                views = tuple([_place(view) for view in view_chain(self._pairs.a, one.inputs[slot].value)])
                found[at][slot] = Source(_place(step), self._number(value, maker), views)
        return [tuple(of_site.items()) for of_site in found]

    def _number(self, value: Value, maker: Step) -> int | None:
        return _number_of(self._pairs.b, value, maker)

    def _is_equal(self, a: Value, b: Value) -> bool:
        return self._meter(a, b).error <= self._meter.tolerance(a, b)

    def _can_be_made(self, given: StepInput, before: Step, *, everywhere: bool) -> bool:
        """Can b make what a is given: a weight, a table of constants, a mask or indices of what it has by then?

        It is taken from a. ``everywhere``: so it must not be made of activations, in which faults before would show.
        """
        value, maker = self._pairs.value_in_b(given.value), self._pairs.a.maker(given.value)
        if value is not None:
            own, made = self._pairs.a.root(given.value), self._pairs.b.maker(value)
            fixed = made is None or all(x.value.dtype not in EPS for x in made.inputs)
            at_hand = made is None or made.index < before.index
            return self._is_equal(own, value) and at_hand and (fixed or not everywhere)
        if given.is_weight or maker is None or self._is_constant(maker):
            return given.is_weight or maker is not None
        return given.value.dtype not in EPS and all(
            self._can_be_made(x, before, everywhere=everywhere) for x in maker.inputs
        )

    def _is_constant(self, step: Step) -> bool:
        """Is it made of nothing that the model was given or has?"""
        if step.index not in self._constants:
            makers = [self._pairs.a.makers.get(given.value.number) for given in step.inputs]
            known = bool(makers) and all(each is not None and self._is_constant(each) for each in makers)
            self._constants[step.index] = known or step.name in FACTORIES
        return self._constants[step.index]


class _Region:
    """The operations of a that compute a value from values that b has by an operation of its own."""

    def __init__(
        self,
        pairs: Pairs,
        is_equal: Callable[[Value, Value], bool],
        is_constant: Callable[[Step], bool],
        before: Step,
    ) -> None:
        self._pairs, self._is_equal, self._is_constant, self._before = pairs, is_equal, is_constant, before
        self._found: dict[int, Step] = {}
        self._own: dict[tuple[int, int], tuple[Step, int | None]] = {}

    @property
    def steps(self) -> list[Step]:
        """The operations in execution order."""
        return [self._found[index] for index in sorted(self._found)]

    def reaches(self, last: Step) -> bool:
        """Do the operations behind a result of a lead back to what b has, after few of them?"""
        pending = [last]
        while pending:
            step = pending.pop()
            if step.index in self._found:
                continue
            self._found[step.index] = step
            if len(self._found) > MOST_OF_REGION or step.unrecorded or not step.outputs:
                return False
            for slot, given in enumerate(step.inputs):
                if self._is_at_hand(step, slot, given):
                    continue
                maker = self._pairs.a.maker(given.value)
                if given.is_weight or maker is None:
                    return False
                if not self._is_constant(maker):
                    pending.append(maker)
        return True

    def _is_at_hand(self, step: Step, slot: int, given: StepInput) -> bool:
        """Has b what a step is given by then, with the same numbers?"""
        value, root = self._pairs.value_in_b(given.value), self._pairs.a.root(given.value)
        if value is None or not self._is_equal(root, value):
            return False
        maker = self._pairs.b.maker(value)
        if maker is None or given.is_weight:
            return True  # a weight, or what the model was given
        if maker.index >= self._before.index or maker.unrecorded:
            return False
        self._own[step.index, slot] = maker, _number_of(self._pairs.b, value, maker)
        return True

    def operations(self, at_site: Callable[[StepList, Step], Step | None]) -> list[Recomputed] | None:
        """Return the operations as they are computed anew at a site; ``None`` where it has not all of them."""
        numbers, a = {step.index: number for number, step in enumerate(self.steps)}, self._pairs.a
        found = []
        for step in self.steps:
            here, own, earlier = at_site(a, step), [], []
            if here is None or len(here.inputs) != len(step.inputs):
                return None
            for slot, (given, theirs) in enumerate(zip(step.inputs, here.inputs)):
                views = tuple([_place(view) for view in view_chain(a, theirs.value)])
                maker, known = a.maker(given.value), self._own.get((step.index, slot))
                if known is not None:
                    source = at_site(self._pairs.b, known[0])
                    if source is None:
                        return None
                    own.append((slot, Source(_place(source), known[1], views)))
                elif maker is not None and maker.index in numbers:
                    earlier.append((slot, Earlier(numbers[maker.index], _number_of(a, given.value, maker), views)))
            found.append(Recomputed(_place(here), tuple(own), tuple(earlier)))
        return found


def recomputed(
    operations: Sequence[Recomputed], seen: Mapping[Place, Ran], own: Callable[[Source], Tensor], ours: Ran
) -> Any:
    """Return the result of the last of some operations of a, computed from values of b."""
    results: list[Any] = []
    for operation in operations:
        theirs = seen.get(operation.of_a)
        if theirs is None or is_inplace(theirs):
            raise NoEdit
        new = {slot: own(source) for slot, source in operation.own}
        for slot, (number, at, views) in operation.earlier:
            result = results[number] if at is None else results[number][at]
            new[slot] = seen_as_in_a(result, [seen[view] for view in views])
        before = tensors_of(theirs)
        if any(slot >= len(before) or before[slot].shape != tensor.shape for slot, tensor in new.items()):
            raise NoEdit
        args, kwargs = with_tensors(theirs, new)
        results.append(theirs.function(*args, **kwargs))
    if not isinstance(results[-1], Tensor) or not isinstance(ours.result, Tensor):
        raise NoEdit
    return results[-1]


def _nothing(theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Stand for the edit of a region, which :func:`recomputed` makes."""
    raise NoEdit


def _number_of(run: StepList, value: Value, maker: Step) -> int | None:
    """Return which of several results of an operation a value is."""
    numbers = [result.number for result in maker.outputs]
    return numbers.index(run.root(value).number) if len(numbers) > 1 else None


def _more(edit: PlannedEdit) -> PlannedEdit:
    """Return an edit of several places, with how many these are in its words."""
    count = len({part.place for part in edit.parts}) - 1
    words = f"{edit.words}, and at {count} more place{'s' * (count > 1)} of this line"
    return replace(edit, words=words, is_cause=False)


def _is_alike(path: str, other: str) -> bool:
    """Are two calls of one part of a model, in whatever layer?"""
    return numberless(f"{path}.") == numberless(f"{other}.")


def _place(step: Step) -> Place:
    return step.call.index, step.node.id.rpartition("/")[2]


def _alone(make: EditOfBoth, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Make an edit that needs no other values of b."""
    return make(theirs, ours)


def _put_after(slot: int, at: int | None, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Return what an operation of a makes of a result of one of b, of that with a number where there are several."""
    result = ours.result if at is None else ours.result[at]
    made = _made_of(slot, theirs, result, own)
    return made if at is None else type(ours.result)([*ours.result[:at], made, *ours.result[at + 1 :]])


def _put_before(slot: int, at: int, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Compute an operation of b with one of its tensors replaced by what an operation of a makes of that."""
    if is_inplace(ours):
        raise NoEdit
    args, kwargs = with_tensors(ours, {at: _made_of(slot, theirs, tensors_of(ours)[at], own)})
    return ours.function(*args, **kwargs)


def _made_of(slot: int, theirs: Ran | None, tensor: Any, own: Mapping[int, Tensor]) -> Tensor:
    """Return what an operation of a makes of a tensor of b in the place of its own."""
    if theirs is None or is_inplace(theirs) or not isinstance(tensor, Tensor):
        raise NoEdit
    known = tensors_of(theirs)
    if slot >= len(known) or known[slot].shape != tensor.shape:
        raise NoEdit
    args, kwargs = with_tensors(theirs, {**own, slot: tensor})
    made = theirs.function(*args, **kwargs)
    if not isinstance(made, Tensor) or made.shape != tensor.shape:
        raise NoEdit
    return made


def _given_as_in_a(slots: Sequence[int], theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Compute an operation of b with the values that its counterpart in a was given."""
    if theirs is None or is_inplace(ours):
        raise NoEdit
    tensors, before = {**dict(enumerate(tensors_of(theirs))), **own}, tensors_of(ours)
    given = {slot: tensors[slot].to(before[slot].dtype) for slot in slots if slot in tensors and slot < len(before)}
    args, kwargs = with_tensors(ours, given)
    made = ours.function(*args, **kwargs)
    if isinstance(made, Tensor) and made.shape != ours.result.shape:
        raise NoEdit
    return made


def seen_as_in_a(tensor: Tensor, views: Sequence[Ran]) -> Tensor:
    """Return a tensor of b through the views that a has of its counterpart."""
    for view in views:
        args, kwargs = with_tensors(view, {0: tensor})
        tensor = view.function(*args, **kwargs)
    return tensor
