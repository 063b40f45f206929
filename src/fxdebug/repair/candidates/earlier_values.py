"""Try operations of b with another value than they are given: what that was made of, or what else was made of it.

The scores before their bias or after it, what a norm is given or what it returns: both are there, have one shape and
often the same statistics, and code that takes the wrong one has the same operations as the right code.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import PICKING
from fxdebug.repair.candidates.variations.list_of_all import may_be_varied
from fxdebug.repair.candidates.variations.variation import NEEDED, Change
from fxdebug.repair.candidates.varied_operations import (
    first_look,
    rows_to_look_at,
    seen_operations,
    steps_around,
    tells_order,
    where_it_begins_to_differ,
)
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Place, Ran, is_inplace
from fxdebug.repair.trials.edit_parts import (
    Part,
    PlannedEdit,
    Source,
    and_more,
    line_of,
    number_of,
    parts_of,
    place_in,
)
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of
from fxdebug.repair.trials.tried_repairs import first_repair, is_settled, proven_at

MOST_RUNS = 40
NEAR = 32  # operations before and after the first finding
DEEP = 3  # operations from the value that is given to the one that should be
MOST_STEPS = 80  # from where b begins to differ
CALLS_UP = 3  # whose inputs may be meant


def told_of_earlier_values(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names an operation of b that must be given another value, for both to return the same.

    ``None`` where a finding is proven already, and where no such value is found. No run begins after ``until``.
    """
    if is_settled(found.findings):
        return None
    tries = (
        (each.edit(sites), partial(each.row, sites, first))
        for first in rows_to_look_at(found)
        if first.doubtful or not (first.kind == "constant" or tells_order(first))  # it is told already
        for each, sites in itertools.islice(_tries(first, runs, until), MOST_RUNS)
    )
    return first_repair(found, runs, tries, until)


Slots: TypeAlias = tuple[int, ...]
"""Which of the inputs of each operation back from a value."""


Site: TypeAlias = tuple[Step, int, Source]
"""An operation, which of its tensors, and what makes what it should be."""


class _ToCall(NamedTuple):
    """An input of a call around an operation: how many calls up, and which one."""

    up: int
    at: int


@dataclass(frozen=True)
class _Other:
    """An operation of b, which of its tensors, and what should be in its place: a result of another operation."""

    step: Step
    slot: int
    given: Step  # that makes what it is given
    wanted: Step
    value: Value
    way: Slots | _ToCall | None  # to it: back from what is given, or to what a call is given; ``None`` for neither

    def edit(self, sites: Sequence[Site]) -> PlannedEdit:
        """Return the edit of b at some sites: those of one operation are made at once."""
        slots: dict[Step, list[tuple[int, Source]]] = {}
        for step, slot, source in sites:
            slots.setdefault(step, []).append((slot, source))
        parts = [Part(place_in(step), None, _given, tuple(own)) for step, own in slots.items()]
        return PlannedEdit(self._words(sites), tuple(parts))

    def row(self, sites: Sequence[Site], shown: Row) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        call = self.step.call.path or self.step.call.type
        who = self.step.op if len({step for step, *_ in sites if step.call is self.step.call}) == 1 else call
        told = f"{who} is given the result of {self.given.op}{NEEDED}{self._wanted}"
        row = proven_at(shown, self.step, "wiring", told, self._words(sites))
        if shown.kind != "wiring" or shown.doubtful or shown.b is None:
            return row
        return shown.proven_by(row.repair) if shown.b.call in self.step.call.with_ancestors() else row

    def _words(self, sites: Sequence[Site]) -> str:
        return f"{self.step.op} given {self._wanted}{and_more(len(sites) - 1)}"

    @property
    def _wanted(self) -> str:
        if isinstance(self.way, _ToCall):
            call = next(itertools.islice(self.step.call.with_ancestors(), self.way.up, None), self.step.call)
            return f"what {call.path or call.type} is given"
        around = {call.index for call in self.step.call.with_ancestors()}
        for call in self.given.call.with_ancestors():
            if call.index not in around and self.value.number in {each.number for each in call.inputs}:
                return f"what {call.path or call.type} is given"
        if self.way is not None and len(self.way) == 1:
            return f"what {self.given.op} is given"
        line = self.wanted.node.source.rpartition("/")[2] if self.wanted.node.source else ""
        return f"the result of {self.wanted.op}{f' ({line})' if line and self.wanted.op == self.given.op else ''}"


def _tries(first: Row, runs: EditedRuns, until: float) -> Iterator[tuple[_Other, list[Site]]]:
    """Yield what may be tried: first what makes the first value that differs equal, then operations that pick.

    A value that a has, too, is more likely meant.
    """
    pairs, _ = runs.pairs()
    around = steps_around(pairs, first, "b", NEAR)
    begins = where_it_begins_to_differ(runs, "b", MOST_STEPS)
    rank = {step: at for at, step in enumerate([*begins[::-1], *around[::-1]][::-1])}  # the likely ones have the last
    steps = sorted(rank, key=lambda step: step.index)
    seen = {**runs.ran("b")} or seen_operations(steps, runs, "b")
    ran = [(step, seen[place_in(step)]) for step in steps if place_in(step) in seen]
    is_repaired = first_look(first, runs, "b", ran)
    lost = runs.lost_of("b")
    promising, others = [], []
    for step, each in sorted(ran, key=lambda known: -rank[known[0]]):
        if time.monotonic() > until:
            break
        if step.transparent or step.name.endswith("_like") or not may_be_varied(step.name, each):
            continue
        if all(value.dtype not in EPS for value in step.outputs):
            continue  # another value may lie on the same side of a bound: that is no cause
        for other in _others(pairs.b, step):
            source = seen.get(place_in(other.wanted))
            sites, is_promising = list(_sites(pairs.b, other)), False
            for at_call in dict.fromkeys([False, len(_in_call(pairs.b, step, other.slot)) > 1]):
                chosen = [_all_in_call(pairs.b, each) for each in sites] if at_call else sites
                here = {site[:2] for site in chosen[-1]}
                changes: dict[Place, Change] = {}
                for user in {user for user, _ in here}:
                    slots = [slot for one, slot in here if one is user]
                    if source is not None:
                        changes[place_in(user)] = partial(_with_result, pairs.b, other, source, slots)
                if changes and runs.is_progress(changes, is_repaired.own, is_repaired.is_wanted):
                    is_promising = True
                    if source is not None and lost is not None and lost.are_of_a(source):
                        yield from ((other, each) for each in chosen)
                    else:
                        promising += [(other, each) for each in chosen]
            if not is_promising:
                others.append((other, sites[0]))
    yield from promising
    yield from sorted(others, key=lambda each: each[0].step.name not in PICKING)


def _with_result(run: StepList, other: _Other, source: Ran, slots: Sequence[int], ran: Ran) -> Any:
    number = number_of(run, other.value, other.wanted)
    return _given(None, ran, dict.fromkeys(slots, source.result if number is None else source.result[number]))


def _in_call(run: StepList, step: Step, slot: int) -> list[tuple[Step, int]]:
    """Return all operations of a call that are given what one of them is, each with the number of the tensor."""
    root = run.root(step.inputs[slot].value).number
    users = [user for user in run.users.get(root, ()) if user.call is step.call and not user.transparent]
    return [(user, at) for user in users for at, x in enumerate(user.inputs) if run.root(x.value).number == root]


def _all_in_call(run: StepList, sites: Sequence[Site]) -> list[Site]:
    return [(user, at, source) for step, slot, source in sites for user, at in _in_call(run, step, slot)]


def _others(run: StepList, step: Step) -> Iterator[_Other]:
    """Yield the other values that an operation may be meant to be given: near ones first."""
    for slot, given in enumerate(step.inputs):
        own = run.makers.get(given.value.number)
        if given.is_weight or own is None or own.unrecorded or given.value.dtype not in EPS:
            continue
        after = (made for user in run.users.get(run.root(given.value).number, ()) for made in _made(user, step))
        others = (
            *((value, way) for value, way in _before(run, given.value)),
            *((value, None) for value in after),
            *((value, _ToCall(up, at)) for up, at, value in _of_calls(step)),
            *((value, None) for value in _unused(run, step, own)),
            *((value, None) for value in _given_to_calls(step, own)),
        )
        known: set[int] = set()
        for value, way in others:
            maker = run.makers.get(value.number)
            if maker is None or maker.unrecorded or maker.index >= step.index or not _fits(value, given):
                continue
            # what is used once is no other name for it
            is_unused = isinstance(way, _ToCall) or not _uses(run, value)
            is_named = is_unused or max(_uses(run, value), _uses(run, given.value)) > 1
            if is_named and value.number not in known:
                known.add(value.number)
                yield _Other(step, slot, own, maker, value, way)


def _before(run: StepList, value: Value) -> Iterator[tuple[Value, Slots]]:
    """Yield what a value was made of, and what that was made of, with which of the inputs it is of each operation."""
    known: list[tuple[Value, Slots]] = [(value, ())]
    for _ in range(DEEP):
        makers = [(run.makers.get(each.number), slots) for each, slots in known]
        known = [
            (given.value, (*slots, at))
            for maker, slots in makers
            if maker is not None
            for at, given in enumerate(maker.inputs)
            if not given.is_weight
        ]
        yield from known


def _of_calls(step: Step) -> Iterator[tuple[int, int, Value]]:
    """Yield what the calls around an operation are given: how far up, which of the inputs, and the value."""
    for up, call in enumerate(itertools.islice(step.call.with_ancestors(), CALLS_UP)):
        for at, value in enumerate(call.inputs):
            yield up, at, value


def _given_to_calls(step: Step, own: Step) -> Iterator[Value]:
    """Yield what the calls are given that make what an operation is given: a layer may be too many."""
    around = {call.index for call in step.call.with_ancestors()}
    for call in own.call.with_ancestors():
        yield from call.inputs if call.index not in around else ()


def _unused(run: StepList, step: Step, own: Step) -> Iterator[Value]:
    """Yield what the code of a call has made as what an operation is given, and uses nowhere."""
    for each in run.steps[: step.index]:
        if each.call is own.call and each.op == own.op and each is not own and not each.unrecorded:
            yield from (value for value in each.outputs if not _uses(run, value))


def _reached(run: StepList, step: Step, slot: int, way: Slots | _ToCall) -> Value | None:
    """Return the value at another place that is reached in the same way; ``None`` where there is none."""
    if isinstance(way, _ToCall):
        call = next(itertools.islice(step.call.with_ancestors(), way.up, None), None)
        inputs = () if call is None else tuple(call.inputs)
        return inputs[way.at] if way.at < len(inputs) else None
    value = step.inputs[slot].value if slot < len(step.inputs) else None
    for at in way:
        maker = None if value is None else run.makers.get(value.number)
        value = None if maker is None or at >= len(maker.inputs) else maker.inputs[at].value
    return value


def _uses(run: StepList, value: Value) -> int:
    return sum(not user.transparent for user in run.users.get(run.root(value).number, ()))


def _made(user: Step, step: Step) -> Sequence[Value]:
    return user.outputs if user.index < step.index else ()


def _fits(value: Value, given: StepInput) -> bool:
    """May a value stand in the place of another one: has it as many rows of one width?"""
    own = given.value
    alike = value.shape[-1:] == own.shape[-1:] and value.numel == own.numel and value.dtype == own.dtype
    return alike and value.number != own.number


def _sites(run: StepList, other: _Other) -> Iterator[list[Site]]:
    """Yield where it may be so: in all of the line, and at this place alone."""
    number = number_of(run, other.value, other.wanted)
    lines = line_of(run, other.step), line_of(run, other.wanted)
    way = other.way
    for line in dict.fromkeys([lines[0], parts_of(run, other.step)]) if way is not None else ():
        reached = [(step, _reached(run, step, other.slot, way or ())) for step in line]
        made = [(step, value, run.makers.get(value.number)) for step, value in reached if value is not None]
        sources = [
            (step, other.slot, Source(place_in(maker), number_of(run, value, maker)))
            for step, value, maker in made
            if maker is not None and not maker.unrecorded and maker.index < step.index
            if other.slot < len(step.inputs) and _fits(value, step.inputs[other.slot])
        ]
        if len(sources) == len(line) > 1:
            yield sources
    both = list(zip(*lines))
    if len(lines[0]) == len(lines[1]) > 1 and (other.step, other.wanted) in both:
        yield [(step, other.slot, Source(place_in(maker), number)) for step, maker in both]
    yield [(other.step, other.slot, Source(place_in(other.wanted), number))]


def _given(theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Compute an operation with some of its tensors replaced by other values of b."""
    tensors = tensors_of(ours)
    if is_inplace(ours) or any(at >= len(tensors) or tensors[at].numel() != x.numel() for at, x in own.items()):
        raise NoEdit
    return computed_with(ours, {at: x.reshape(tensors[at].shape).to(tensors[at].dtype) for at, x in own.items()})
