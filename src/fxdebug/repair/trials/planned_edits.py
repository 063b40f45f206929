"""Plan the edits that may undo a finding: at its operation, at others by the pairs of the runs, and all over its line.

An operation of a is put behind or before one of b, or an operation of b is given what that of a is given. All values
are then those of b, as it has them by then: with tensors of a, anything would be repaired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor

from fxdebug.comparison.diagnosis.cause import listed
from fxdebug.comparison.diagnosis.region import view_chain
from fxdebug.comparison.result import Row, Side
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.tolerance import visible_share
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import FACTORIES
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.tensors_at_hand import weights_of
from fxdebug.repair.trials.edit_parts import (
    EditOfPlace,
    Part,
    PlannedEdit,
    Sites,
    Source,
    and_more,
    line_of,
    number_of,
    place_in,
)
from fxdebug.repair.trials.edits_of_operations import OF_REGION, edits_of, op_of, place_of
from fxdebug.repair.trials.edits_with_values import by_itself, given_as_in_a, put_after, put_before, with_result_of_a
from fxdebug.repair.trials.equal_values import EqualValues
from fxdebug.repair.trials.regions_of_a import RegionOfA

MOST_OF_CALL = 128  # operations of a call of a that b lacks
OF_CODE = frozenset(["values", "missing", "extra", "constant", "shape", "wiring", "dtype"])  # that a region explains


class EditPlan:
    """Plan edits of findings by the pairs of two plain runs."""

    def __init__(self, runs: EditedRuns) -> None:
        self._runs = runs
        self._differ: dict[tuple[str, str], bool] = {}
        self._pairs, self._meter = runs.pairs()
        self._equal = EqualValues(self._pairs, self._meter)
        self._constants: dict[Step, bool] = {}

    def edits(self, row: Row) -> list[PlannedEdit]:
        """Return the edits that may undo a finding, those at one place first."""
        here = place_of(row.b)
        single = [
            PlannedEdit(words, (Part(here, place_of(row.a), partial(by_itself, make)),), is_cause)
            for words, make, is_cause in edits_of(row)
            if here is not None
        ]
        sites = self._sites(row)
        if sites is None:
            return [*single, *self._of_table(row), *self._of_missing_calls(row)]
        alone = Sites((sites.own,), 0)
        planned = [*single, *self._of_pairs(row, alone), *self._of_weights(row, alone)]
        planned += [*self._of_table(row), *self._of_missing_calls(row)]
        planned += [*self._after_all(row, alone), *self._of_region(row, alone)]
        if len(sites.pairs) > 1:
            everywhere = [
                replace(edit, parts=tuple([Part(place_in(y), place_in(x), edit.parts[0].make) for x, y in sites.pairs]))
                for edit in single
            ]
            of_sites = [*self._of_pairs(row, sites), *self._of_weights(row, sites)]
            of_sites += [*self._after_all(row, sites), *self._of_region(row, sites)]
            planned += map(_more, [*everywhere, *of_sites])
        elif len(lines := line_of(self._pairs.a, sites.own[0])) > 1:
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
        lines = line_of(self._pairs.a, one), line_of(self._pairs.b, other)
        found = tuple(zip(*lines)) if len(lines[0]) == len(lines[1]) else ()
        return Sites(found, found.index((one, other))) if (one, other) in found else Sites(((one, other),), 0)

    def _of_pairs(self, row: Row, sites: Sites) -> Iterator[PlannedEdit]:
        """Yield the edits that give an operation of b something else, at all of some sites."""
        one, other = sites.own
        if one.unrecorded or other.unrecorded:
            return
        weights = [at for at, given in enumerate(one.inputs) if given.is_weight]
        if row.kind == "weights" and weights and len(one.inputs) == len(other.inputs):
            words, make = f"{op_of(row.b)} with the weights of a", partial(given_as_in_a, weights)
            yield from (replace(edit, is_cause=True) for edit in self._edit(words, make, sites, ()))
        for slot, given in enumerate(one.inputs) if row.kind == "missing" else ():
            facing = [at for at, own in enumerate(other.inputs) if self._pairs.are_paired(given.value, own.value)]
            others = [at for at in range(len(one.inputs)) if at != slot]
            if facing and not given.is_weight:
                make = partial(put_before, slot, facing[0])
                yield from self._edit(f"{op_of(row.a)} of a before {op_of(row.b)}", make, sites, others)
        if row.kind in ("wiring", "missing"):
            words = f"{op_of(row.b)} given what that of a is given"
            wrong = self._wrong(one, other)
            yield from self._edit(words, partial(given_as_in_a, wrong), sites, wrong) if wrong else ()
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
            yield PlannedEdit(words, tuple([Part(place_in(y), place_in(x), make, own) for (x, y), own in sides]))

    def _after_all(self, row: Row, sites: Sites) -> Iterator[PlannedEdit]:
        """Yield the edits that put some operations of a, which b lacks, behind what b has of their inputs."""
        one = sites.own[0]
        for slot, given in enumerate(one.inputs) if row.kind == "missing" and not one.unrecorded else ():
            value = None if given.is_weight else self._pairs.value_in_b(given.value)
            maker = None if value is None else self._pairs.b.maker(value)
            if value is None or maker is None or maker.unrecorded:
                continue
            makers = line_of(self._pairs.b, maker) if len(sites.pairs) > 1 else [maker]
            others = [at for at in range(len(one.inputs)) if at != slot]
            if len(makers) != len(sites.pairs) or makers[sites.at] is not maker:
                continue
            known = self._at_hand(others, sites, makers)
            if known is not None:
                make = partial(put_after, slot, number_of(self._pairs.b, value, maker))
                parts = [
                    Part(place_in(y), place_in(x), make, own) for (x, _), y, own in zip(sites.pairs, makers, known)
                ]
                yield PlannedEdit(f"{op_of(row.a)} of a after {maker.op}", tuple(parts))

    def _of_region(self, row: Row, sites: Sites) -> Iterator[PlannedEdit]:
        """Yield the edit that puts all of a's operations since what b has, too, in the place of a result of b."""
        other = sites.own[1]
        wanted = self._pairs.value_in_a(other.outputs[0]) if len(other.outputs) == 1 else None
        last = None if wanted is None else self._pairs.a.maker(wanted)
        if row.kind not in OF_CODE or last is None or other.unrecorded:
            return
        region = RegionOfA(self._pairs, self._is_equal, self._is_constant, other)
        if region.reaches(last):
            yield from self._with_region(region, sites, (None, None))

    def _of_table(self, row: Row) -> Iterator[PlannedEdit]:
        """Yield the edits that put a table or a mask of a in the place of that of b: no activations are in it.

        A mask of numbers in the place of one that is true or false may say what is hidden, or what is seen.
        """
        if row.kind not in ("values", "constant"):
            return
        one, other = (self._table(run, side) for run, side in ((self._pairs.a, row.a), (self._pairs.b, row.b)))
        if one is None or other is None or one.outputs[0].numel != other.outputs[0].numel:
            return
        lines = line_of(self._pairs.a, one), line_of(self._pairs.b, other)
        together = tuple(zip(*lines)) if len(lines[0]) == len(lines[1]) else tuple((one, each) for each in lines[1])
        for hides in (True, False) if one.outputs[0].dtype != other.outputs[0].dtype else (True,):
            words = f"{other.op} with the numbers of {one.op} of a"
            for sites in dict.fromkeys([((one, other),), together]):
                make = partial(with_result_of_a, hides)
                parts = tuple([Part(place_in(y), place_in(x), make) for x, y in sites])
                edit = PlannedEdit(words, parts, of_numbers=True)
                yield edit if len(sites) == 1 else _more(edit)

    def _table(self, run: StepList, side: Side | None) -> Step | None:
        """Return the operation of a finding that makes a mask or a table: what it is about, or what it shows."""
        value = None if side is None or side.value is None else run.values.get(side.value.number)
        of_node = None if side is None or side.node is None else run.by_node.get(side.node)
        for step in (of_node, None if value is None else run.maker(value)):
            if step is not None and not step.unrecorded and len(step.outputs) == 1:
                is_mask = visible_share(step.outputs[0]) is not None and self._is_of_positions(step, run)
                if is_mask or self._is_constant(step, run):
                    return step
        return None

    def _of_weights(self, row: Row, sites: Sites) -> Iterator[PlannedEdit]:
        """Yield the edit that computes a product of b as a does, with the weights of a: those of the finding."""
        other = sites.own[1]
        wanted = self._pairs.value_in_a(other.outputs[0]) if len(other.outputs) == 1 else None
        last = None if wanted is None else self._pairs.a.maker(wanted)
        if row.kind != "weights" or last is None or other.unrecorded:
            return
        # where an adapter is added behind it, what the call around returns
        around = [] if last.call.parent is None else [*(last.call.parent.outputs or ())]
        added = (
            self._pairs.a.maker(around[0]) if len(around) == 1 and around[0].shape == last.outputs[0].shape else None
        )
        parts = self._pairs, self._is_equal, self._is_constant, other, self._equal.in_b
        for end in dict.fromkeys([last, added or last]):
            region = RegionOfA(*parts, own_weights=True)
            if region.reaches(end) and len(end.outputs) == 1:
                computing = [step for step in region.steps if not step.transparent]
                modules = {name.rpartition(".")[0] for name in region.weights}
                if len(computing) == 1 or all(module and f"{module}." in row.because for module in modules):
                    for edit in self._with_region(region, sites, (None, None)):
                        yield replace(edit, words=f"{other.op} with {listed(region.weights)} of a", names_why=True)

    def _of_missing_calls(self, row: Row) -> Iterator[PlannedEdit]:
        """Yield the edits that put a call of a, which b lacks, behind what b has of its input: inner calls first."""
        known = [] if row.kind != "missing" or row.a is None else [*row.a.call.with_ancestors()]
        for call in known:
            if call.parent is not None and call.index not in self._pairs.calls_of_a:
                yield from self._of_missing_call(call)

    def _of_missing_call(self, call: Call) -> Iterator[PlannedEdit]:
        values = [*(call.outputs or ())]
        last = self._pairs.a.maker(values[0]) if len(values) == 1 else None
        for given in call.inputs if last is not None else ():
            value = self._pairs.value_in_b(given)
            if value is None or not self._is_equal(self._pairs.a.root(given), value):
                value = self._equal.in_b(self._pairs.a.root(given))
            maker = None if value is None else self._pairs.b.maker(value)
            if value is None or maker is None or maker.unrecorded or value.shape != values[0].shape or last is None:
                continue
            before = next((step for step in self._pairs.b.steps[maker.index + 1 :] if not step.unrecorded), None)
            if before is None:
                continue
            parts = self._pairs, self._is_equal, self._is_constant, before, self._equal.in_b
            region = RegionOfA(*parts, own_weights=True, most=MOST_OF_CALL)
            operations = region.operations(lambda _, step: step) if region.reaches(last) else None
            if operations is not None:
                which = number_of(self._pairs.a, values[0], last), number_of(self._pairs.b, value, maker)
                part = Part(place_in(maker), None, None, region=tuple(operations), results=which)
                yield PlannedEdit(f"{call.path} of a after {maker.op}", (part,), names_why=True)

    def _with_region(
        self, region: RegionOfA, sites: Sites, which: tuple[int | None, int | None]
    ) -> Iterator[PlannedEdit]:
        """Yield the edit that puts a region of a in the place of a result of b, at all of some sites."""
        parts = []
        for at, (_, place) in enumerate(sites.pairs):
            operations = region.operations(partial(self._at_site, sites, at))
            if operations is None:
                return
            parts.append(Part(place_in(place), None, None, region=tuple(operations), results=which))
        names = [step.op for step in region.named]
        weights = f" with {listed(region.weights)}" if region.weights else ""
        yield PlannedEdit(f"{listed(names)}{weights}{OF_REGION}{sites.own[1].op}", tuple(parts))

    def _at_site(self, sites: Sites, at: int, run: StepList, step: Step) -> Step | None:
        """Return the operation at another site that stands where one does at a finding's own; ``None`` without one."""
        if len(sites.pairs) == 1:
            return step
        line = line_of(run, step)
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
                    yield Part(place_in(user), place_in(partner), partial(given_as_in_a, wrong), known[0])

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
            makers = line_of(self._pairs.b, maker) if len(sites.pairs) > 1 else [maker]
            if len(makers) != len(sites.pairs) or makers[sites.at] is not maker:
                return None
            for at, (step, (one, _)) in enumerate(zip(makers, sites.pairs)):
                views = tuple([place_in(view) for view in view_chain(self._pairs.a, one.inputs[slot].value)])
                found[at][slot] = Source(place_in(step), number_of(self._pairs.b, value, maker), views)
        return [tuple(of_site.items()) for of_site in found]

    def _is_equal(self, a: Value, b: Value) -> bool:
        return self._meter(a, b).error <= self._meter.tolerance(a, b) and not self._hold_other_numbers(a, b)

    @cached_property
    def _weights(self) -> list[dict[str, Tensor]]:
        return [weights_of(run.model) for run in (self._runs.a, self._runs.b)]

    def _hold_other_numbers(self, a: Value, b: Value) -> bool:
        """Are these two weights of one shape that differ in their order alone, which statistics do not show?"""
        names = str(a.name or ""), str(b.name or "")
        if not all(names) or a.shape != b.shape:
            return False
        if names not in self._differ:
            one, other = (weights.get(name) for weights, name in zip(self._weights, names))
            known = one is not None and other is not None and one.shape == other.shape
            sides = [x.cpu().double() for x in (one, other) if x is not None]
            same = not known or torch.allclose(*sides, rtol=1e-4, atol=1e-6)
            self._differ[names] = not same
        return self._differ[names]

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

    def _is_of_positions(self, step: Step, run: StepList) -> bool:
        """Is it made of nothing but constants, indices and masks that were not computed from activations?"""
        if self._is_constant(step, run):
            return True
        makers = [run.makers.get(given.value.number) for given in step.inputs]
        return all(
            maker is not None and maker.index < step.index and self._is_of_positions(maker, run)
            if maker is not None
            else given.value.dtype not in EPS and not given.is_weight
            for given, maker in zip(step.inputs, makers)
        )

    def _is_constant(self, step: Step, run: StepList | None = None) -> bool:
        """Is it made of nothing that the model was given or has? It is of a, unless a run is given."""
        run = self._pairs.a if run is None else run
        if step not in self._constants:
            self._constants[step] = False  # a cast of a weight that returns the weight is its own maker
            makers = [run.makers.get(given.value.number) for given in step.inputs]
            known = bool(makers) and all(each is not None and self._is_constant(each, run) for each in makers)
            self._constants[step] = known or step.name in FACTORIES
        return self._constants[step]


def _more(edit: PlannedEdit) -> PlannedEdit:
    """Return an edit of several places, with how many these are in its words."""
    count = len({part.place for part in edit.parts}) - 1
    return replace(edit, words=f"{edit.words}{and_more(count)} of this line", is_cause=False)
