"""Try the causes that a comparison of live models names: with this one edit, does b return what a returns?

A cause whose edit repairs b is proven. One whose edit does not, where it is the only finding, is told as likely.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import Tensor

from fxdebug.comparison.diagnosis.weights.folded_norm import FOLDED
from fxdebug.comparison.result import ComparisonData, Kind, Row
from fxdebug.comparison.rows import step_side
from fxdebug.comparison.steps import Step
from fxdebug.operators.names import PICKING
from fxdebug.repair.rerun.edited_runs import EditedRuns, Returned
from fxdebug.repair.rerun.replaced_operations import Place, Ran, ReplacedOperations
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, Source, seen_as_in_a
from fxdebug.repair.trials.edits_of_operations import IN_ITS_PLACE, OF_REGION, Edit, place_of
from fxdebug.repair.trials.planned_edits import EditPlan
from fxdebug.repair.trials.regions_of_a import recomputed

MOST = 8  # findings that are tried each
MOST_TOGETHER = 64  # and all at once, as of a setting of every layer
LIKELY = "likely"
STILL = ", and b still returns something else"
MANY = " have no counterpart"  # of several operations
RAISES = [Returned(math.inf, 0.0)]  # of a side that raises with an edit, or returns what cannot be compared


def tried(findings: Sequence[Row], plain: ComparisonData, runs: EditedRuns, budget: float) -> list[Row]:
    """Return the findings with what became of their edits.

    No run begins after ``budget`` seconds. Nothing is tried where the plain runs return the same to the last bit.
    Where they do within tolerance, a repair must make it so to the last bit.
    """
    until = time.monotonic() + budget
    rows = list(findings)
    # what rounding explains is no proof where only the last bits differ
    exactly = returns_the_same(plain)
    if exactly and returns_the_same(plain, exactly=True):
        return rows
    # the weights of a are none for a convolution with a norm folded in
    known = [number for number, row in enumerate(rows[:MOST]) if place_of(row.b) and FOLDED not in row.because]
    plan = EditPlan(runs) if known else None
    planned = {number: edits for number in known if plan is not None and (edits := plan.edits(rows[number]))}
    if not planned:
        return rows
    seen = _seen_in_a([edit for edits in planned.values() for edit in edits], runs)
    made: dict[int, list[PlannedEdit]] = {}  # the edits of each finding that could be made
    for number, edits in planned.items():
        failed = []
        for edit in edits:
            if time.monotonic() > until:
                return rows
            returned = _returned(_made(edit, seen), runs)
            repaired = None if returned is None else are_the_same(returned, exactly=exactly)
            if repaired:
                told = f"{edit.words}: with this edit b returns what a returns"
                places = {part.place for part in edit.parts}
                return [
                    proven_by_edit(row, edit, told) if at == number or place_of(row.b) in places else row
                    for at, row in enumerate(rows)
                ]
            is_refuted = repaired is False and edit.is_cause and rows[number].kind != "shape"
            if is_refuted and not is_nearer(returned or (), plain):
                rows[number] = rows[number].doubted_by(edit.words)
            if returned is not None and returned != RAISES:
                failed += [edit] if edit.is_cause else []
                made.setdefault(number, []).append(edit)
        if failed and len(rows) == 1:
            rows[number] = replace(rows[number], repair=f"{LIKELY}: tried with {failed[0].words}{STILL}")
    rows = _doubted_together(rows, {number: edits[0] for number, edits in planned.items()}, seen, runs)
    rest = rows[MOST:MOST_TOGETHER] if len(made) == MOST < len(rows) <= MOST_TOGETHER and plan is not None else []
    more = {number: plan.edits(row)[:1] for number, row in enumerate(rest, MOST)} if plan is not None else {}
    seen |= _seen_in_a([edit for edits in more.values() for edit in edits], runs) if more else {}
    made |= {number: edits for number, edits in more.items() if edits}
    of_kinds = [{number: edits for number, edits in made.items() if rows[number].kind == kind} for kind in ("weights",)]
    for chosen in (made, *of_kinds):
        for pick in (_smallest, _largest, _that_names_why):
            if time.monotonic() > until:
                return rows
            edits_now = {number: picked for number, edits in chosen.items() if (picked := pick(edits)) is not None}
            together = _all_at_once(rows, edits_now, seen, runs, exactly)
            if together is not None:
                return together
    return rows


def _smallest(edits: Sequence[PlannedEdit]) -> PlannedEdit:
    return edits[0]


def _largest(edits: Sequence[PlannedEdit]) -> PlannedEdit:
    return edits[-1]


def _that_names_why(edits: Sequence[PlannedEdit]) -> PlannedEdit | None:
    return next((edit for edit in reversed(edits) if edit.names_why), None)


def _doubted_together(
    rows: list[Row], edits: dict[int, PlannedEdit], seen: dict[Place, Ran], runs: EditedRuns
) -> list[Row]:
    """Return the findings, with doubt about settings of one operation whose edits together bring b no nearer to a.

    Where a port takes two things in the other order, and rightly, each of both seems to have the other's setting.
    """
    groups: dict[tuple[str, str | None], list[int]] = {}
    for number in edits:
        if rows[number].kind == "constant":
            groups.setdefault((rows[number].path, rows[number].op), []).append(number)
    for numbers in groups.values():
        both = {place: edit for number in numbers for place, edit in _made(edits[number], seen).items()}
        returned = _returned(both, runs) if len(numbers) > 1 else None
        if returned is not None and not is_nearer(returned, runs.plain):
            for number in numbers:
                rows[number] = rows[number].doubted_by(edits[number].words)
    return rows


def proven_by_edit(row: Row, edit: PlannedEdit, told: str) -> Row:
    """Return a finding with an edit that repairs b.

    Operations of a in the place of those of b say that these differ, and not which of several has no counterpart.
    """
    names = edit.words.partition(OF_REGION)[0]
    if edit.of_region and not says_more_than_a_region(row, names.split(", ")):
        row = replace(row, because=f"{names} in a, other operations in b")
    elif edit.of_region and row.kind == "extra" and row.op and not {*names.split(", ")} <= {row.op, *PICKING}:
        row = replace(row, kind="values", because=f"{names} in a, {row.op} in b")  # it was left out, which is not all
    in_place = names.partition(IN_ITS_PLACE)[0]
    if row.kind == "extra" and not edit.of_region and in_place not in (names, row.op):  # it is one for another
        row = replace(row, kind="values", because=f"{in_place} in a, {row.op} in b")
    return row.proven_by(told, by_region=edit.of_region)


def says_more_than_a_region(row: Row, names: Sequence[str]) -> bool:
    """May what a finding says stand beside a region of a that repairs b?

    Not where it says of several operations, some of which are not in that region, that they have no counterpart.
    """
    told, several, _ = row.because.partition(MANY)
    return not several or {*told.partition(" of a")[0].split(", ")} <= {*names}


def is_repaired_by(edit: PlannedEdit, runs: EditedRuns, side: Literal["a", "b"] = "b") -> bool:
    """Does b return what a returns with an edit of b, or with one of a?"""
    exactly = returns_the_same(runs.plain)
    return _repairs(edits_at(edit, runs), runs, exactly, side) is True


def is_settled(findings: Sequence[Row]) -> bool:
    """Is a finding proven by an edit that says what is wrong? A region of a in the place of one of b does not."""
    return any(row.proven and not row.by_region for row in findings)


def first_repair(
    found: ComparisonData, runs: EditedRuns, tries: Iterable[tuple[PlannedEdit, Callable[[], Row]]], until: float
) -> ComparisonData | None:
    """Return a comparison with the finding of the first edit that repairs b; ``None`` where none does.

    Each edit comes with what makes its finding. No run begins after ``until``.
    """
    for edit, row in tries:
        if time.monotonic() > until:
            return None
        if is_repaired_by(edit, runs):
            return with_findings(found, [row()])
    return None


def proven_at(
    shown: Row,
    step: Step,
    kind: Kind,
    because: str,
    repair: str,
    partner: Step | None = None,
    *,
    by_region: bool = False,
) -> Row:
    """Return a proven finding at an operation of b, with the error of the one that it stands for.

    ``partner`` is the operation of a; without one it is that of the finding shown. ``repair`` is the edit in words;
    ``by_region``: it puts all that a does there in the place of that operation.
    """
    told = replace(
        shown,
        path=step.call.path,
        op=step.op,
        kind=kind,
        source=step.node.source,
        a=shown.a if partner is None else step_side(partner, next(iter(partner.outputs), None)),
        b=step_side(step, next(iter(step.outputs), None)),
        because=because,
        position=step.index,
    )
    return told.proven_by(f"{repair}: with this edit b returns what a returns", by_region=by_region)


def edits_at(edit: PlannedEdit, runs: EditedRuns) -> dict[Place, Edit]:
    """Return what an edit does at each place of b."""
    return _made(edit, _seen_in_a([edit], runs))


def with_next_place(row: Row, runs: EditedRuns) -> Row:
    """Return a finding that is likely, with where b differs first with the edit that was tried, if that is after it."""
    told = row.repair.removesuffix(STILL)
    edit = None
    if told != row.repair and row.kind in ("constant", "weights") and runs.again is not None:
        edit = next((each for each in EditPlan(runs).edits(row) if each.is_cause and told.endswith(each.words)), None)
    if edit is None or runs.again is None:
        return row
    try:
        after = runs.again(ReplacedOperations(edits_at(edit, runs)))[1].first
    except Exception:  # of the model
        return row
    later = after is not None and after.position > row.position
    return replace(row, repair=f"{told}, and b then differs first at {after.where}") if later and after else row


def _all_at_once(
    rows: list[Row],
    chosen: dict[int, PlannedEdit],
    seen: dict[Place, Ran],
    runs: EditedRuns,
    exactly: bool,
) -> list[Row] | None:
    """Return the findings, proven where one edit of each of several repairs b; ``None`` where these do not."""
    if len(chosen) < 2:
        return None
    made = {number: _made(edit, seen) for number, edit in chosen.items()}
    if not _repairs({place: edit for of_row in made.values() for place, edit in of_row.items()}, runs, exactly):
        return None
    more = f"with this and {len(chosen) - 1} more edit{'s' * (len(chosen) > 2)} b returns what a returns"
    told = list(rows)
    for number, edit in chosen.items():
        others = {place: edit for at, of_row in made.items() if at != number for place, edit in of_row.items()}
        effect = _effect(others, runs)
        alone = "" if effect is None else f"; without this one it differs by {effect:.3g}"
        told[number] = proven_by_edit(rows[number], edit, f"{edit.words}: {more}{alone}")
    return told


def _effect(others: dict[Place, Edit], runs: EditedRuns) -> float | None:
    """Return how far b is from a with all faults but one repaired; ``None`` where that cannot be told."""
    found = runs.run("b", ReplacedOperations(others))
    errors = [each.error for each in found or ()]
    return max(errors) if errors and math.isfinite(max(errors)) else None


def _seen_in_a(edits: Sequence[PlannedEdit], runs: EditedRuns) -> dict[Place, Ran]:
    """Return the operations of a that some edits need, as they ran."""
    seen: dict[Place, Ran] = {}

    def keep(place: Place) -> Edit:
        def kept(ran: Ran) -> Any:
            seen[place] = ran
            return ran.result

        return kept

    wanted = {place for edit in edits for part in edit.parts for place in part.seen_in_a}
    if not wanted:
        return seen  # as of an edit that needs b alone: a has no need to run
    runs.see_a(ReplacedOperations({place: keep(place) for place in wanted}))
    return seen


def _made(edit: PlannedEdit, seen: dict[Place, Ran]) -> dict[Place, Edit]:
    """Return what an edit does at places of b: looks at values that it needs later, and new results."""
    kept: dict[Place, Any] = {}

    def look(place: Place, then: Edit | None, ran: Ran) -> Any:
        result = ran.result if then is None else then(ran)
        kept[place] = result
        return result

    def value(source: Source) -> Tensor:
        result = kept[source.place] if source.at is None else kept[source.place][source.at]
        return seen_as_in_a(result, [seen[view] for view in source.views])

    def make(part: Part, ran: Ran) -> Any:
        if part.make is None:

            def known(source: Source) -> Tensor:
                if source.place != part.place:
                    return value(source)
                result = ran.result if source.at is None else ran.result[source.at]  # as it is without this edit
                return seen_as_in_a(result, [seen[view] for view in source.views])

            return recomputed(part.region, part.results, seen, known, ran, part.order)
        own = {slot: value(source) for slot, source in part.own}
        return part.make(None if part.of_a is None else seen.get(part.of_a), ran, own)

    edits: dict[Place, Edit] = {part.place: partial(make, part) for part in edit.parts}
    for place in {source.place for part in edit.parts for source in part.sources}:
        edits[place] = partial(look, place, edits.get(place))
    return edits


def _repairs(edits: dict[Place, Edit], runs: EditedRuns, exactly: bool, side: Literal["a", "b"] = "b") -> bool | None:
    """Does b with these edits, or a, return what the other one returns? ``None`` where an edit could not be made."""
    found = _returned(edits, runs, side)
    return None if found is None else are_the_same(found, exactly=exactly)


def _returned(edits: dict[Place, Edit], runs: EditedRuns, side: Literal["a", "b"] = "b") -> list[Returned] | None:
    """Return how far what a side returns with edits is from the other: infinitely, where it raises.

    ``None`` where an edit could not be made.
    """
    failed: list[Exception] = []

    def guarded(edit: Edit) -> Edit:
        def changed(ran: Ran) -> Any:
            try:
                return edit(ran)
            except Exception as error:
                failed.append(error)
                return ran.result

        return changed

    stepper = ReplacedOperations({place: guarded(edit) for place, edit in edits.items()})
    found = runs.run(side, stepper)
    if found is None and stepper.made and not failed:
        return RAISES
    return None if failed or found is None or stepper.made != edits.keys() else found


def is_nearer(returned: Sequence[Returned], plain: ComparisonData) -> bool:
    """Is what b returns with an edit nearer to what a returns than without it? True where nothing is measured."""
    before = [row.error for row in plain.outputs if row.measured]
    return not returned or not before or max(each.error for each in returned) < max(before)


def with_told(found: ComparisonData, told: Sequence[Row]) -> ComparisonData:
    """Return a comparison with others in the place of its findings, one for each, also among its rows."""
    new = dict(zip(map(id, found.findings), told))
    rows = tuple([new.get(id(row), row) for row in found.rows])
    return replace(found, findings=tuple(told), rows=rows)


def with_findings(found: ComparisonData, rows: Sequence[Row]) -> ComparisonData:
    """Return a comparison with these findings alone."""
    return with_told(replace(found, findings=tuple(rows)), rows)


def doubtful_last(found: ComparisonData) -> ComparisonData:
    """Return a comparison with the findings last whose edit brings b no nearer to a."""
    rows = sorted(found.findings, key=lambda row: row.doubtful)
    return replace(found, findings=tuple(rows))


def returns_the_same(comparison: ComparisonData, *, exactly: bool = False) -> bool:
    """Do both sides return the same, within tolerance or to the last bit?"""
    known = [Returned(row.error, row.tolerance) for row in comparison.outputs if row.measured]
    return are_the_same(known, exactly=exactly)


def are_the_same(returned: Sequence[Returned], *, exactly: bool = False) -> bool:
    """Are returned values the same as those that face them, if there are any?"""
    return bool(returned) and all(error <= (0.0 if exactly else tolerance) for error, tolerance in returned)
