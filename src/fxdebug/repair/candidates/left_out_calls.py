"""Try whole calls of b left out: a layer too many, which has the operations of all other layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call
from fxdebug.repair.candidates.varied_operations import where_it_begins_to_differ
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Ran, is_inplace
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, Source, and_more, is_alike, number_of, place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit
from fxdebug.repair.trials.tried_repairs import first_repair, proven_at

MOST = 16  # calls


def told_of_calls_left_out(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names a call of b without which both return the same: what it is given goes on.

    ``None`` where a finding is proven already, and where there is no such call. No run begins after ``until``.
    """
    first = found.first
    if first is None or first.kind in ("input", "nonfinite", "random") or any(row.proven for row in found.findings):
        return None
    return first_repair(found, runs, ((edit, partial(replace, row)) for edit, row in _tries(first, runs)), until)


def _tries(first: Row, runs: EditedRuns) -> Iterator[tuple[PlannedEdit, Row]]:
    """Yield the calls around where b begins to differ, with all that are alike in other layers, and alone."""
    pairs, _ = runs.pairs()
    run, known = pairs.b, dict[int, Call]()
    for step in where_it_begins_to_differ(runs, "b", MOST)[::-1]:
        known |= {call.index: call for call in step.call.with_ancestors() if call.parent is not None}
    for call in list(known.values())[:MOST]:
        alone = _part(run, call)
        alike = [part for other in run.trace.calls if is_alike(other.path, call.path) and (part := _part(run, other))]
        if alone is None:
            continue
        for parts in dict.fromkeys([tuple(alike), (alone,)]):
            words = f"{call.path} left out{and_more(len(parts) - 1)}"
            edit = PlannedEdit(words, tuple([part for part, _ in parts]))
            because = f"{call.path} has no counterpart in a"
            yield edit, replace(proven_at(first, alone[1], "extra", because, words), path=call.path, op=call.type)


def _part(run: StepList, call: Call) -> tuple[Part, Step] | None:
    """Return the edit that puts what a call is given in the place of what it returns, and what makes that."""
    outputs = [*(call.outputs or ())]
    last = run.maker(outputs[0]) if len(outputs) == 1 else None
    for value in call.inputs if last is not None and not last.unrecorded else ():
        maker = run.maker(value)
        if maker is None or last is None or maker.unrecorded:
            continue
        if (value.shape, value.dtype) == (outputs[0].shape, outputs[0].dtype):
            source = Source(place_in(maker), number_of(run, value, maker))
            return Part(place_in(last), None, _passed_on, ((0, source),)), last
    return None


def _passed_on(theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    if is_inplace(ours) or not isinstance(ours.result, Tensor) or own[0].numel() != ours.result.numel():
        raise NoEdit
    return own[0].reshape(ours.result.shape)
