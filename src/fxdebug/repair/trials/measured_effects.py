"""Measure what each cause does to what is returned: model a runs with the results that b has in its places.

In an isolated run each call of b is given what that of a was given, and so are the calls inside it: what a result
there differs by is its own. That difference is added to the result of the operation of a, or of its call, and a goes
on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.runs.same_start import state_restored
from fxdebug.capture.torch_state import internals
from fxdebug.comparison.elementwise import is_reordered, measure_elements
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import FxDebugError
from fxdebug.operators.dtypes import EPS
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Place, Ran, ReplacedOperations, tensors_in
from fxdebug.repair.trials.edits_of_operations import place_of

ALIKE = 2.0  # two effects within this factor: which one is larger, the inputs decide
MOST = 8  # causes whose effect is measured
MOST_NOTES = 3
UNSEEN = 30.0  # times the error that statistics show, that elements may have

Gap: TypeAlias = tuple[Tensor, Tensor]
"""What a returned in a place, and what b returned there of the same."""


@dataclass(frozen=True)
class Gaps:
    """The differences of a cause: at operations of a, and at calls of a, by their index."""

    operations: Mapping[Place, Gap] = field(default_factory=dict)
    calls: Mapping[int, list[Gap]] = field(default_factory=dict)


@dataclass(frozen=True)
class Isolated:
    """A comparison with an isolated run of b, and what runs b so again with a look at some of its operations."""

    found: ComparisonData
    see_b: Callable[[ReplacedOperations], object]


def with_effects(found: ComparisonData, isolated: Isolated, runs: EditedRuns, until: float) -> ComparisonData:
    """Return a comparison whose findings tell the effect of their cause, the largest first.

    The rows of one cause have one effect, that of all its places together. A cause whose effect cannot be measured,
    such as another value that a call is handed, stays where it stood. No run begins after the time ``until``.
    """
    causes = found.causes
    results = _seen([row for rows in causes[:MOST] for row in rows], isolated, runs) if causes else ({}, {})
    effects: dict[int, float] = {}
    for number, rows in enumerate(causes[:MOST]):
        if results is None or time.monotonic() > until:
            break
        gaps = _gaps(rows, isolated.found, results)
        effect = None if gaps is None else effect_of(gaps, runs)
        if effect or (effect is not None and not any(row.error for row in found.outputs)):
            effects[number] = effect  # of something that is returned otherwise, 0 is no answer
    if not effects:
        return found
    told = {id(row): replace(row, effect=effects.get(number)) for number, rows in enumerate(causes) for row in rows}
    ranked = iter(_by_size(effects))
    order = [next(ranked) if number in effects else number for number in range(len(causes))]
    findings = tuple([told[id(row)] for number in order for row in causes[number]])
    rows = tuple([told.get(id(row), row) for row in found.rows])
    return replace(found, findings=findings, rows=rows)


def with_other_bits(found: ComparisonData, isolated: Isolated, runs: EditedRuns, until: float) -> ComparisonData:
    """Return a comparison with notes on what is within tolerance, and not the same to the last bit, with its effect.

    In each call of two models of one dtype it is the first operation that was given the same and returns something
    else; those of one line are one note.
    """
    if found.narrow is not None:
        return found
    groups = _other_bits(found, isolated.found)
    results = _seen([row for rows in groups for row in rows], isolated, runs) if groups else None
    notes = []
    for rows in groups if results is not None else ():
        gaps = None if time.monotonic() > until or results is None else _gaps(rows, isolated.found, results)
        effect = None if gaps is None else effect_of(gaps, runs)
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        reached = "" if effect is None else f"; {effect:.2g} of what is returned"
        largest = max(row.error for row in rows)
        notes.append(f"{rows[0].where}{more}: given the same, other last bits than in a ({largest:.2g}){reached}")
    return replace(found, notes=(*notes, *found.notes)) if notes else found


def _other_bits(found: ComparisonData, isolated: ComparisonData) -> list[list[Row]]:
    """Return the first rows of calls whose results differ within tolerance, those of one line together."""
    told = {row.b.call.index for row in found.findings if row.b is not None}
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in sorted(isolated.rows, key=lambda row: row.position):
        if row.b is None or row.a is None or not row.measured or not row.certain or row.kind is not None:
            continue
        sides = [side.value.dtype if side.value is not None else "" for side in (row.a, row.b)]
        if not 0.0 < row.error <= row.tolerance or row.error_in or sides[0] != sides[1] or sides[0] not in EPS:
            continue
        if row.b.call.index not in told:
            told.add(row.b.call.index)
            groups.setdefault((row.source, row.op, row.b.type), []).append(row)
    return sorted(groups.values(), key=lambda rows: -max(row.error for row in rows))[:MOST_NOTES]


def _by_size(effects: Mapping[int, float]) -> list[int]:
    """Return numbers by the size of their effects, the largest first; alike ones by number.

    >>> _by_size({0: 0.3, 1: 0.01, 2: 0.5})
    [0, 2, 1]
    """
    left, ranked = sorted(effects, key=lambda number: -effects[number]), list[int]()
    while left:
        alike = [number for number in left if effects[number] * ALIKE >= effects[left[0]]]
        ranked += sorted(alike)
        left = left[len(alike) :]
    return ranked


def effect_of(gaps: Gaps, runs: EditedRuns) -> float | None:
    """Return how far what a returns moves with results of b in some places; ``None`` where that is unknown."""
    stepper = _Moved(gaps)
    with state_restored(*runs.models):
        try:
            tensors = runs.a.run(stepper)
        except FxDebugError:
            raise
        except Exception:  # of the model, which is given numbers of its port
            return None
    values = list(runs.a.trace.root.outputs or ())
    if stepper.moved != gaps.calls.keys() or stepper.made != gaps.operations.keys() or len(values) != len(tensors):
        return None
    errors = [
        _distance(runs.a.trace.tensor(value), new, value)
        for value, new in zip(values, tensors)
        if value.saved is not None and new is not None and tuple(new.shape) == tuple(value.shape)
    ]
    return max(errors) if errors and math.isfinite(max(errors)) else None


Results: TypeAlias = tuple[dict[Place, Any], dict[Place, Any]]
"""Results of operations of a and of b, as they were seen."""


def _seen(rows: Sequence[Row], isolated: Isolated, runs: EditedRuns) -> Results | None:
    """Return the results of the operations of some findings, of b as it runs isolated; ``None`` where a run raises."""
    seen: Results = ({}, {})
    sides = [row.a for row in rows], [row.b for row in rows]
    wanted = [{place for side in each if (place := place_of(side)) is not None} for each in sides]
    if not any(wanted):
        return seen

    def keep(into: dict[Place, Any], place: Place, ran: Ran) -> Any:
        into[place] = ran.result.detach().clone() if isinstance(ran.result, Tensor) else None
        return ran.result

    looks = [ReplacedOperations({place: partial(keep, seen[n], place) for place in wanted[n]}) for n in range(2)]
    try:
        runs.see_a(looks[0])
        with state_restored(*runs.models):
            isolated.see_b(looks[1])
    except FxDebugError:
        raise
    except Exception:  # of a model
        return None
    return seen


def _gaps(rows: Sequence[Row], isolated: ComparisonData, results: Results) -> Gaps | None:
    """Return the differences in all places of a cause; ``None`` where one of them is not known."""
    operations: dict[Place, Gap] = {}
    calls: dict[int, list[Gap]] = {}
    for row in rows:
        if row.a is None or row.b is None or row.handed_over:
            return None
        places = place_of(row.a), place_of(row.b)
        if places[0] is not None and places[1] is not None:
            pair = results[0].get(places[0]), results[1].get(places[1])
            if not _face(*pair) or not _is_that_of(row, *pair):
                return None
            operations[places[0]] = pair
            continue
        a, b = isolated.a.calls[row.a.call.index], isolated.b.calls[row.b.call.index]
        gap = _gap_of(a, b, isolated)
        if gap is None or not any(one.numel() and not torch.equal(one, other) for one, other in gap):
            return None  # it hands on what differs to a call inside it, whose result was replaced
        calls[a.index] = gap
    return Gaps(operations, calls)


def _face(one: Any, other: Any) -> bool:
    """Are these two results of one shape and dtype, with their elements in one order?"""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return False
    if one.shape != other.shape or one.dtype != other.dtype or not one.is_floating_point():
        return False
    return not is_reordered(one, other)


def _is_that_of(row: Row, a: Tensor, b: Tensor) -> bool:
    """Are two results as far apart as a finding says, or by what its statistics do not see? Else it is of others."""
    value = row.b.value if row.b is not None else None
    if value is None or not math.isfinite(row.error):
        return False
    return _distance(a, b, value) <= UNSEEN * row.error


def _gap_of(a: Call, b: Call, isolated: ComparisonData) -> list[Gap] | None:
    """Return what a call of a and its counterpart returned, given the same; ``None`` where that does not face."""
    one, other = (_tensors(call.outputs or (), run) for call, run in ((a, isolated.a), (b, isolated.b)))
    if not one or other is None or len(one) != len(other):
        return None
    pairs = list(zip(one, other))
    return pairs if all(_face(*pair) for pair in pairs) else None


def _tensors(values: Sequence[Value] | Any, run: TraceData) -> list[Tensor] | None:
    found = []
    for value in values:
        if value.saved is None:
            return None
        found.append(run.tensor(value))
    return found


class _Moved(ReplacedOperations):
    """A stepper that adds gaps to what operations and calls return; ``moved`` are the calls where it did."""

    def __init__(self, gaps: Gaps) -> None:
        super().__init__({place: partial(_with_gap, gap) for place, gap in gaps.operations.items()})
        self.moved: set[int] = set()
        self._gaps = gaps.calls

    def after_call(self, frame: Frame, output: Any) -> Any:
        """Return what b returned for what a was given, moved by what the call is given otherwise now."""
        gap = self._gaps.get(frame.index)
        if gap is None:
            return output
        tensors = tensors_in(output)
        if len(tensors) != len(gap) or any(one.shape != a.shape for one, (a, _) in zip(tensors, gap)):
            return output
        with self._recorder.unwatched(), torch.no_grad():
            moved = iter([_moved(one, a.to(one.device), b.to(one.device)) for one, (a, b) in zip(tensors, gap)])
            self.moved.add(frame.index)
            return internals.tree_map(lambda leaf: next(moved) if isinstance(leaf, Tensor) else leaf, output)


def _with_gap(gap: Gap, ran: Ran) -> Any:
    return _moved(ran.result, *gap)


def _moved(result: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the result of a call with the difference of b and a added, as exactly as its dtype holds it."""
    if not result.is_floating_point() or torch.equal(result, a):
        return b.clone()
    return (result.double() + (b.double() - a.double())).to(result.dtype)


def _distance(old: Tensor, new: Tensor, value: Value) -> float:
    with torch.no_grad():
        return measure_elements(old.reshape(-1), new.reshape(-1), 0.0, value, value).error
