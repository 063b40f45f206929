"""Try operations in another way than they are written: exchanged, with another setting, another grouping, shifted.

The values of both ways may have the same statistics, and the other run may have other operations there, so that nothing
in two runs says which is right: a way that makes both return the same is.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from fxdebug.capture.torch_state.module_members import parameters_of
from fxdebug.comparison.constants import number_in
from fxdebug.comparison.diagnosis.missing_steps import lacks
from fxdebug.comparison.diagnosis.region import region_of
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step, StepList
from fxdebug.repair.candidates.of_weights.exchanged_weights import exchanges, own_numbers
from fxdebug.repair.candidates.other_order import OtherOrders, Ways
from fxdebug.repair.candidates.region_again import RegionAgain
from fxdebug.repair.candidates.variations.groupings import groupings
from fxdebug.repair.candidates.variations.list_of_all import FEW, FEW_SETTINGS, VARY, VARY_SETTINGS, Vary, may_be_varied
from fxdebug.repair.candidates.variations.made_from_results import made_from_results, passed_through
from fxdebug.repair.candidates.variations.variation import NEEDED, Change, Variation, changes_something, leaves_out
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Place, Ran, ReplacedOperations, is_inplace
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, and_more, is_alike, part_of, place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit, tensors_of
from fxdebug.repair.trials.tried_repairs import is_repaired_by, is_settled, proven_at, with_findings

MOST_RUNS = 400  # with what does not repair the first difference by itself
MOST_BEFORE_WEIGHTS = 80  # of these runs, where a call is missing that may be a norm
MOST_OF_WEIGHTS = 200  # more of these runs
MOST_PLACES = 64  # of one line
MOST_STEPS = 40  # of a region: operations that are kept with what they are given
MOST_AT_BEGIN = 24  # where b begins to lack what a has
MOST_CHOICES = 8  # of experts, before these: what is chosen is used far behind, after all experts
OF_B = 0.7  # of the time for the few kinds: those of a are fewer
NEAR = 12  # operations before and after the first finding
MOST_NUMBERS = 12  # of the other run, that are tried in the place of one

Side = Literal["a", "b"]
_SIDES: tuple[Side, ...] = ("b", "a")


def told_of_variations(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names an operation that must be computed another way, for both to return the same.

    Operations of b are tried first, then those of a: b may have written out what a does in one operation. ``None``
    where a finding is proven or names a weight, an order or what is infinite already, and where no such way is found.
    No run begins after ``until``.
    """
    if is_settled(found.findings):
        return None
    pairs, _ = runs.pairs()
    for number, first in enumerate(rows_to_look_at(found)):
        regions = {side: steps_around(pairs, first, side) for side in _SIDES}
        told = tells_order(first)  # which of them is moved is all that is left to tell
        sides = _SIDES[:1] if told else _SIDES
        begins = {side: [] if told or number else where_it_begins_to_differ(runs, side) for side in _SIDES}
        tries = itertools.chain(
            *(_tries(first, runs, side, begins, until, only="many") for side in _SIDES if begins[side]),
            *(_tries(first, runs, side, regions, until, begins[side], only="orders" if told else "") for side in sides),
        )
        for each in _promising_first(tries, is_missing=first.kind == "missing"):
            if time.monotonic() > until:
                return None
            if is_repaired_by(each.edit, runs, each.side) and not any(
                is_repaired_by(other.edit, runs, each.side) for other in each.beside()
            ):
                return with_findings(found, [each.row(first)])
    return None


def told_of_results(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that says what a result of b must be multiplied by, or have added, for both to be the same.

    That says less than any other edit: ``None`` where a finding is proven, if only by a region of a.
    """
    if any(row.proven for row in found.findings) or not (first := next(iter(rows_to_look_at(found)), None)):
        return None
    for each in _made_from_results(runs, where_it_begins_to_differ(runs, "b"), until):
        if time.monotonic() > until:
            return None
        if is_repaired_by(each.edit, runs) and not any(is_repaired_by(other.edit, runs) for other in each.beside()):
            return with_findings(found, [each.row(first)])
    return None


def told_of_few_variations(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return the same where b begins to lack what a has, of the kinds of which an operation has few: these are quick.

    No value is taken for another one there, whatever was paired.
    """
    first = next(iter(rows_to_look_at(found)), None)
    begins = {side: where_it_begins_to_differ(runs, side) for side in _SIDES}
    if is_settled(found.findings) or first is None or tells_order(first):
        return None
    now = time.monotonic()
    ends = {"b": now + OF_B * (until - now), "a": until}
    tries = (_tries(first, runs, side, begins, ends[side], only="few") for side in _SIDES if begins[side])
    for each in itertools.chain.from_iterable(tries):
        if time.monotonic() > until:
            return None
        if each.is_promising and is_repaired_by(each.edit, runs, each.side):
            return with_findings(found, [each.row(first)])
    return None


def rows_to_look_at(found: ComparisonData) -> list[Row]:
    """Return the findings around which operations are tried: the first, and the earliest that names an operation.

    None where the first one names a weight, an input, a draw or what is infinite. A call stands behind the others where
    nothing inside of it is told.
    """
    first = found.first
    if first is None or first.kind in ("weights", "input", "nonfinite", "random"):
        return []
    earliest = min((row for row in found.findings if row.op), key=lambda row: row.position, default=first)
    known = [first] if first is earliest else [first, earliest]
    return sorted(known, key=lambda row: row.op is None)


def promising_edits(first: Row, runs: EditedRuns, until: float) -> Iterator[tuple[PlannedEdit, Row]]:
    """Yield edits of b's operations that make its first difference equal, each with its finding.

    A number is left out where those near by do the same.
    """
    pairs, _ = runs.pairs()
    regions = {side: steps_around(pairs, first, side) for side in _SIDES}
    left_out: list[_Varied] = []  # of which most bring about some value: the settings come before
    for each in _tries(first, runs, "b", regions, until):
        if each.is_promising and not each.is_loose:
            if each.ways[0][1].kind == "extra":
                left_out.append(each)
            else:
                yield each.edit, each.row(first)
    yield from ((each.edit, each.row(first)) for each in left_out)


def where_it_begins_to_differ(runs: EditedRuns, side: Side, most: int = MOST_AT_BEGIN) -> list[Step]:
    """Return the operations around which what the other side has not begins, whatever is paired: likely ones last."""
    pairs, _ = runs.pairs()
    run = pairs.b if side == "b" else pairs.a
    known = {place_in(step): step for step in run.steps if not step.unrecorded}
    found: dict[object, Step] = {}  # of a line that runs in a loop or in several layers, the first place
    for step in (known[place] for place in runs.first_lost(side) if place in known):
        makers = [run.makers.get(given.value.number) for given in step.inputs]
        before = tuple([(maker.node.source, maker.op) if maker is not None else None for maker in makers])
        key = step.node.source or step, step.op, before, part_of(step.call.path)
        known_step = found.get(key)
        found[key] = step if known_step is None or step.index < known_step.index else known_step
    return list(found.values())[:most][::-1]


def _promising_first(tries: Iterator[_Varied], *, is_missing: bool) -> Iterator[_Varied]:
    """Yield what repairs the first difference as it comes, then some of the others: of these that is not known."""
    others: list[_Varied] = []
    of_weights: list[_Varied] = []  # they would leave no run for the others
    for each in tries:
        if each.is_promising:
            yield each
        else:
            (of_weights if each.ways[0][1].kind == "weights" else others).append(each)
    before = MOST_BEFORE_WEIGHTS if is_missing else MOST_RUNS
    yield from others[:before]
    yield from of_weights[:MOST_OF_WEIGHTS]
    yield from others[before:MOST_RUNS]


@dataclass(frozen=True)
class _Varied:
    """Operations of a run, with the other way to compute each: those of a line, or two views that belong together."""

    side: Side
    ways: tuple[tuple[Step, Variation], ...]
    is_promising: bool = False  # it makes the first value that differed that of the other run
    is_loose: bool = False  # and so does a number near by
    of_each: int = 1  # the operations that one place takes

    def beside(self) -> Iterator[_Varied]:
        """Yield what must not repair as well: another number, as a bound may lie beyond all values, or none of them."""
        for changes in zip(*(way.beside for _, way in self.ways)):
            others = zip(self.ways, changes)
            yield replace(self, ways=tuple([(step, replace(way, change=change)) for (step, way), change in others]))

    def changes_beside(self) -> Iterator[dict[Place, Change]]:
        """Yield the changes of these."""
        for other in self.beside():
            yield {place_in(step): way.change for step, way in other.ways}

    @property
    def edit(self) -> PlannedEdit:
        """The edit of that run."""
        parts = [Part(place_in(step), None, partial(_changed, way)) for step, way in self.ways]
        return PlannedEdit(self.words, tuple(parts))

    @property
    def words(self) -> str:
        """The edit in words."""
        step, way = self.ways[0]
        return f"{way.edit.format(op=step.op)}{and_more(len(self.ways) // self.of_each - 1)}"

    def row(self, shown: Row) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        way = self.ways[0][1]
        step = next((step for step, _ in self.ways if step.call.path == shown.path), self.ways[0][0])
        because = way.because.format(op=step.op)
        if way.of_operand is not None and way.of_operand < len(step.inputs) and step.inputs[way.of_operand].is_weight:
            because = because.replace(f"before {step.op}", f"in {step.inputs[way.of_operand].value.name}")
        if self.side == "b":
            row = proven_at(shown, step, way.kind, because, self.words)
            places = {(step.call.path, step.op) for step, _ in self.ways} if self.of_each > 1 else {(row.path, row.op)}
            is_said = _says_order(shown) if self.of_each > 1 else _says_why(shown)
            return shown.proven_by(row.repair) if (shown.path, shown.op) in places and is_said else row
        repair = f"{self.words}: with this edit a returns what b returns"
        is_named = shown.kind == way.kind == "missing" and not shown.doubtful
        if _says_why(shown) or (is_named and shown.because.startswith(f"{step.op} of a")):
            return shown.proven_by(repair)
        if way.kind == "missing":
            return replace(shown, kind="missing", because=lacks([step.op], step)).proven_by(repair)
        because = because.replace(NEEDED, ", where b's values need ")
        return replace(shown, kind=way.kind, because=f"{step.op} of a has {because}").proven_by(repair)


def _says_why(row: Row) -> bool:
    """Does a finding say which setting differs, rather than which operations stand on either side?"""
    return (row.kind == "constant" and not row.doubtful) or _says_order(row)


def _says_order(row: Row) -> bool:
    """Does a finding say what stands before what on either side?"""
    return " before " in row.because and not row.doubtful


def _tries(
    first: Row,
    runs: EditedRuns,
    side: Side,
    regions: Mapping[Side, Sequence[Step]],
    until: float,
    tried: Sequence[Step] = (),
    *,
    only: Literal["orders", "few", "many", ""] = "",
) -> Iterator[_Varied]:
    """Yield the ways of the operations that the first finding depends on since both are equal, and of those around it.

    Two values that are taken for each other show where each is made, before what takes them. The last ones come first,
    without those that were tried before.
    """
    pairs, _ = runs.pairs()
    run = pairs.a if side == "a" else pairs.b
    steps, numbers = regions[side], _numbers(regions["b" if side == "a" else "a"])
    seen = runs.ran(side) or seen_operations(steps, runs, side)
    rank = {step: at for at, step in enumerate(steps) if place_in(step) in seen}
    ran = [(step, seen[place_in(step)]) for step in sorted(rank, key=lambda step: step.index)]
    is_repaired = first_look(first, runs, side, ran)
    known = [(at, *each) for at, each in enumerate(ran) if may_be_varied(each[0].name, each[1])]
    in_order = known[::-1]
    known = sorted((each for each in known if each[1] not in tried), key=lambda each: -rank[each[1]])
    for (before, later, back), (at, step, each) in itertools.combinations(in_order, 2) if side == "b" else ():
        if only == "many":
            break
        for way, way_back in _of_both_views(step, each, later, back):
            places = [*((one, way) for one in _line(run, step)), *((one, way_back) for one in _line(run, later))]
            both = {place_in(step): way.change, place_in(later): way_back.change}
            is_promising = is_repaired({at: way.change, before: way_back.change}) or runs.is_progress(both)
            yield _Varied(side, tuple(places), is_promising)
    for sites in _in_other_orders(run, steps, runs) if side == "b" and only != "few" else ():
        if time.monotonic() > until:
            return
        all_sites: list[Ways] = [*dict.fromkeys([tuple(itertools.chain.from_iterable(sites)), sites[0]])]
        if any(runs.is_progress({place_in(one): way.change for one, way in ways}) for ways in all_sites):
            for ways in all_sites:
                moved = _Varied(side, ways, is_promising=True, of_each=len(sites[0]))
                yield replace(moved, is_loose=any(map(runs.is_progress, moved.changes_beside())))
    if only == "orders":
        return
    kept = runs.ran("b") if side == "b" else {}
    for several in _of_several(run, steps, kept) if side == "b" and only != "many" else ():
        if time.monotonic() > until:
            return
        alone, all_of = several[0], tuple(itertools.chain.from_iterable(several))
        if any(runs.is_progress({place_in(one): way.change for one, way in ways}) for ways in (alone, all_of)):
            for ways in dict.fromkeys([all_of, alone]):
                yield _Varied(side, ways, is_promising=True, of_each=len(alone))
    known_ways: set[tuple[str, tuple[int, ...]]] = set()  # each line is met at all of its places
    lost = runs.lost_of(side)
    through: list[Vary] = [] if lost is None or side == "a" else [partial(passed_through, lost)]
    kinds = (*(() if only == "many" else (*VARY[:FEW], *through)), *(() if only == "few" else VARY[FEW:]))
    settings = VARY_SETTINGS[:FEW_SETTINGS] if only == "few" else VARY_SETTINGS
    for vary in kinds if side == "b" else settings:
        for at, step, each in known:
            for way in _ways(vary, step.name, each, numbers):
                if time.monotonic() > until:
                    return
                if side == "a" and leaves_out(way, each):
                    others = first.kind == "missing" and not first.because.startswith(f"{step.op} of a")
                    if not first.doubtful and (first.kind == "wiring" or (others and way.kind == "extra")):
                        continue  # more is told, of which this is the last operation, or what it is given
                    way = replace(way, kind="missing")
                if changes_something(way, each) and not _stands_in_a(way, each, runs):
                    if lost is None:
                        is_promising = is_repaired({at: way.change})
                    else:
                        line = [s for s in _line(run, step) if s.index >= step.index]
                        alike = [s for s in line if is_alike(s.call.path, step.call.path)]
                        is_promising = vary in through or any(
                            runs.is_progress(
                                {place_in(s): way.change for s in each_of}, is_repaired.own, is_repaired.is_wanted, side
                            )
                            for each_of in ([line] if len(alike) == len(line) else [line, alike])
                        )
                    is_loose = is_promising and any(is_repaired({at: change}) for change in way.beside)
                    for chosen in _groups(run, step, way):
                        key = f"{way.because}{way.edit}", tuple([one.index for one in chosen])
                        if key in known_ways and not is_promising:
                            continue
                        known_ways.add(key)
                        yield _Varied(side, tuple([(one, way) for one in chosen]), is_promising, is_loose)


def _made_from_results(runs: EditedRuns, steps: Sequence[Step], until: float) -> Iterator[_Varied]:
    """Yield the edits of results of b that must be multiplied by a number to be values of a, or have it added."""
    pairs, _ = runs.pairs()
    lost, ran = runs.lost_of("b"), runs.ran("b")
    for step in reversed(steps) if lost is not None else ():
        each = ran.get(place_in(step))
        if lost is None or each is None or not may_be_varied(step.name, each):
            continue
        for way in _ways(partial(made_from_results, lost), step.name, each):
            if time.monotonic() > until:
                return
            for chosen in _groups(pairs.b, step, way):
                yield _Varied("b", tuple([(one, way) for one in chosen]), is_promising=True)


def _of_several(run: StepList, steps: Sequence[Step], kept: Mapping[Place, Ran]) -> Iterator[list[Ways]]:
    """Yield edits of several operations that belong together: at one place first, then at those that are alike."""
    yield from exchanges(run, steps, kept)
    yield from ([ways] for ways in own_numbers([_line(run, step) for step in steps], kept))


def _stands_in_a(way: Variation, ran: Ran, runs: EditedRuns) -> bool:
    """Do rows of a weight that a way exchanges stand in one weight of a as they do in b?

    Then it is what they are multiplied by that has its parts in another order, and not the weight.
    """
    if way.contracted is None or runs.a.model is None:
        return False
    at, start, stop, size = way.contracted
    rows = tensors_of(ran)[at].detach()[start:stop]
    for weight in parameters_of(runs.a.model):
        for known in (weight.detach(), weight.detach().mT) if weight.ndim == 2 else ():
            if known.shape[1:] == rows.shape[1:] and known.dtype == rows.dtype:
                begins = range(0, known.shape[0] - rows.shape[0] + 1, size)
                if any(torch.equal(known[begin : begin + rows.shape[0]], rows) for begin in begins):
                    return True
    return False


def tells_order(row: Row) -> bool:
    """Does a finding say that an operation stands in another order?"""
    return row.kind == "wiring" and "another order" in row.because


def _in_other_orders(run: StepList, steps: Sequence[Step], runs: EditedRuns) -> Iterator[list[Ways]]:
    """Yield the edits that move an operation past others, each at its place first and then all over their lines."""
    orders = OtherOrders(run, runs.ran("b"))
    for row in sorted(orders.rows(steps), key=len):
        own, lines = orders.edits(row), [_alike_in_line(run, step) for step in row]
        alike = list(zip(*lines)) if len({*map(len, lines)}) == 1 and row in zip(*lines) else []
        others = [orders.edits(each) for each in alike if each != row]
        for number, ways in enumerate(own):
            yield [ways, *(each[number] for each in others if len(each) == len(own))]


def _ways(vary: Vary, name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield the ways of one kind, as far as they can be told: a nested tensor has no sizes, and torch raises."""
    try:
        yield from vary(name, ran, numbers)
    except Exception:
        return


@dataclass(frozen=True)
class FirstLook:
    """Some operations, the first value among their results that differs, and what says whether a new one does not."""

    again: RegionAgain | None = None
    own: Tensor | None = None
    is_wanted: Callable[[Tensor], bool] = lambda new: False

    def __call__(self, changes: Mapping[int, Change]) -> bool:
        """Do changes make that value the one of the other run?"""
        new = None if self.again is None else self.again.with_changes(changes)
        return new is not None and self.is_wanted(new)


def first_look(first: Row, runs: EditedRuns, side: Side, ran: Sequence[tuple[Step, Ran]]) -> FirstLook:
    """Return what says whether changes make the first value that differs that of the other run."""
    pairs, meter = runs.pairs()  # a finding may show values of b on its way with the inputs of a
    sides = (pairs.a, first.a), (pairs.b, first.b)
    values = [None if x is None or x.value is None else run.values.get(x.value.number) for run, x in sides]
    own, other = values if side == "a" else values[::-1]
    there = runs.b if side == "a" else runs.a
    made = [each.result for step, each in ran if own is not None and [x.number for x in step.outputs] == [own.number]]
    if other is None or own is None or other.saved is None or len(made) != 1 or not isinstance(made[0], Tensor):
        return FirstLook()
    again, wanted = RegionAgain([each for _, each in ran], made[0]), there.trace.tensor(other)
    a, b = (own, other) if side == "a" else (other, own)

    def is_wanted(new: Tensor) -> bool:
        if new.shape != made[0].shape:
            return False
        error = meter.of_tensors(a, b, *((new, wanted) if side == "a" else (wanted, new)))
        return error is not None and error <= meter.tolerance(a, b)

    return FirstLook(again, made[0], is_wanted)


def _line(run: StepList, step: Step) -> tuple[Step, ...]:
    """Return what the line of an operation ran of its kind: in a loop, or in the calls of several layers."""
    source = step.node.source
    line = () if source is None else tuple([s for s in run.steps if s.node.source == source and s.op == step.op])
    return line if 1 < len(line) <= MOST_PLACES else (step,)


def _alike_in_line(run: StepList, step: Step) -> tuple[Step, ...]:
    """Return those of a line that have the settings of an operation, and are given what the same operations make."""

    def given(one: Step) -> tuple[object, ...]:
        makers = [run.makers.get(each.value.number) for each in one.inputs]
        return one.constants, *(None if maker is None else (maker.op, maker.node.source) for maker in makers)

    return tuple([one for one in _line(run, step) if given(one) == given(step)])


def _groups(run: StepList, step: Step, way: Variation) -> list[tuple[Step, ...]]:
    """Return the operations that may have one fault: of its line, of the same part in all layers, and it alone.

    Weights have one size; a number may be written in several lines of a class of modules.
    """
    line = _line(run, step)
    groups = [line, tuple([s for s in line if is_alike(s.call.path, step.call.path)])]
    groups.append(tuple([s for s in line if part_of(s.call.path) == part_of(step.call.path)]))
    if way.kind == "weights":
        groups.append(tuple([s for s in line if _sizes(s) == _sizes(step)]))
    if way.of_number:
        groups.append(tuple([s for s in run.steps if (s.op, s.call.type) == (step.op, step.call.type) and s.constants]))
    return [*dict.fromkeys(each for each in (*groups, (step,)) if len(each) <= MOST_PLACES)]


def _sizes(step: Step) -> list[tuple[int, ...]]:
    """Return the shapes of an operation's weights, which are those of the norms of one width."""
    return [given.value.shape for given in step.weights]


def _of_both_views(step: Step, ran: Ran, later: Step, back: Ran) -> Iterator[tuple[Variation, Variation]]:
    """Yield other groupings of a view that splits a dimension and of one that joins it again, or the reverse."""
    for way, way_back in itertools.product(_ways(groupings, step.name, ran), _ways(groupings, later.name, back)):
        if way.factors == way_back.factors and way.splits != way_back.splits:
            yield way, way_back


def steps_around(pairs: Pairs, first: Row, side: Side, near: int = NEAR) -> list[Step]:
    """Return the operations of a run that may be at fault, in execution order."""
    run, shown = (pairs.a, first.a) if side == "a" else (pairs.b, first.b)
    if shown is None:
        start = first.position - near if side == "b" else len(run.steps)
        return [s for s in run.steps[max(start, 0) : first.position + near + 1] if not s.unrecorded]
    firm = pairs.is_firm_in_a if side == "a" else pairs.is_firm
    region = () if shown.value is None else region_of(run, shown.value, firm, through=True).steps
    at = first.position if side == "b" else max((step.index for step in region), default=None)
    call = shown.call if shown.call.children or shown.call.parent is None else shown.call.parent
    if first.kind == "missing" and call.parent is not None:  # what stands in its place may be in a call beside
        call = call.parent
    inside = {each.index for each in call.walk()}  # a call of one operation is the whole of nothing
    around = [s for s in run.steps if at is not None and s.call.index in inside and abs(s.index - at) <= near]
    steps = {step.index: step for step in (*region, *around) if not step.unrecorded}
    known = [steps[index] for index in sorted(steps)][-max(MOST_STEPS, 2 * near) :]
    before = [s for s in run.steps[: at or 0] if s.call.index in inside and s.name in ("topk", "gather")]
    return [*(s for s in before[-MOST_CHOICES:] if not known or s.index < known[0].index), *known]


def _numbers(steps: Sequence[Step]) -> list[float]:
    """Return the numbers among the settings of some operations."""
    texts = [text.partition("=")[2] or text for step in steps for text in step.constants]
    known = [number for text in texts for number in [number_in(text)] if number is not None and math.isfinite(number)]
    return list(dict.fromkeys(known))[:MOST_NUMBERS]


def seen_operations(steps: Sequence[Step], runs: EditedRuns, side: Side) -> dict[Place, Ran]:
    """Return some operations as they ran, in one more run."""
    seen: dict[Place, Ran] = {}

    def keep(place: Place, ran: Ran) -> Any:
        seen[place] = ran
        return ran.result

    places = [place_in(step) for step in steps]
    runs.run(side, ReplacedOperations({place: partial(keep, place) for place in places}))
    return seen


def _changed(way: Variation, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    if is_inplace(ours):
        raise NoEdit
    return way.change(ours)
