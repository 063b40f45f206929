"""Steps of one run that have a counterpart in the other one after all: without effect there, or in another place.

Added zeros and factors of one are passed over when steps are paired, as ports leave them out. Where only one run has
such a step, what it is given says why: another constant, another initial value, a weight of zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fxdebug.comparison.diagnosis.cause import Cause, differing_settings, listed
from fxdebug.comparison.diagnosis.region import Divergence, Region, computes_floats, view_chain
from fxdebug.comparison.diagnosis.weights.changed_weight import changed_weight
from fxdebug.comparison.diagnosis.weights.weight_slices import Weights
from fxdebug.comparison.pairing.pairs import Pair, Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.names import BY_RANK, FACTORIES, PICKING, TRANSPARENT, role

NamedSteps = list[tuple[str, Step]]


# Without effect ----------------------------------------------------------------------------------


def without_effect(
    divergence: Divergence, gone: NamedSteps, new: NamedSteps
) -> tuple[Cause | None, NamedSteps, NamedSteps]:
    """Return what a step is given that has no effect in one run, and that the other run has with an effect.

    Also returns the steps without those that both runs have and give the same: a tiny epsilon explains nothing.
    """
    pairs = divergence.judge.pairs
    left: tuple[NamedSteps, NamedSteps] = [], []
    for rest, side, run in zip(left, (gone, new), (pairs.b, pairs.a)):
        for name, step in side:
            whole = name in (step.name, step.op)
            instead = _idle_in_its_place(divergence, step, run) if whole else None
            if instead is not None:
                return instead, gone, new
            for other in _idle(run, _calls_facing(divergence, step, run), role(name)):
                one, facing = (step, other) if run is pairs.b else (other, step)
                if divergence.judge.adds_error(facing.index):
                    continue  # it is a finding of its own
                cause = _other_operand(divergence, one, facing)
                if cause is not None:
                    return cause, gone, new
                if _given_the_same(one, facing):
                    break
            else:
                rest.append((name, step))
    return None, *left


def _idle_in_its_place(divergence: Divergence, step: Step, run: StepList) -> Cause | None:
    """Return what the other run computes of the same values in the place of a step: it has no effect on these."""
    pairs = divergence.judge.pairs
    for call in _calls_facing(divergence, step, run):
        for other in run.by_call.get(call.index, ()):
            one, facing = (step, other) if run is pairs.b else (other, step)
            is_idle = other.transparent and other.name not in TRANSPARENT and role(other.name) != role(step.name)
            if not is_idle or len(one.inputs) != len(facing.inputs) or not one.data:
                continue
            if [value.shape for value in one.outputs] != [value.shape for value in facing.outputs]:
                continue
            if all(pairs.are_paired(x.value, y.value) for x, y in zip(one.inputs, facing.inputs)):
                return divergence.cause("values", facing, f"{one.op} in a, {facing.op} in b", partner=one)
    return None


def _given_the_same(one: Step, other: Step) -> bool:
    """Are two steps given one value each and the same constants?"""
    alone = len(one.inputs) == len(other.inputs) == 1 and one.name == other.name
    return alone and bool(one.constants) and not any(differing_settings(one, other))


def _calls_facing(divergence: Divergence, step: Step, run: StepList) -> list[Call]:
    """Return the calls of the other side that may have the counterpart of a step."""
    pairs = divergence.judge.pairs
    if run is pairs.a:
        call = pairs.call_in_a(step.call)
        return [] if call is None else [call]
    return _calls_of(divergence, step)


def _calls_of(divergence: Divergence, step: Step) -> list[Call]:
    """Return the calls of b that may have the counterpart of a step of a."""
    pairs = divergence.judge.pairs
    partner = pairs.calls_of_a.get(step.call.index)
    known = [] if partner is None else [pairs.b.trace.calls[partner]]
    around = [other.call for other in divergence.in_b.steps]
    values = [divergence.b, *(given.value for other in divergence.in_b.steps for given in other.data)]
    around += [other.call for value in values for other in view_chain(pairs.b, value)]
    return list({call.index: call for call in (*known, *around)}.values())


def _idle(run: StepList, calls: Iterable[Call], of_role: str) -> Iterator[Step]:
    """Yield the steps of some calls that compute and have no effect on these numbers."""
    for call in calls:
        for step in run.by_call.get(call.index, ()):
            if step.transparent and step.name not in TRANSPARENT and role(step.name) == of_role:
                yield step


def _other_operand(divergence: Divergence, one: Step, other: Step) -> Cause | None:
    """Return the operand in which two steps, one of them without effect, differ."""
    pairs = divergence.judge.pairs
    if len(one.weights) == len(other.weights) == 1:
        names = [step.weights[0].value.name or "" for step in (one, other)]
        told = changed_weight(names[0], names[1], Weights(pairs.a.trace), Weights(pairs.b.trace))
        if told is None:
            return None
        return replace(divergence.cause("weights", other, told, partner=one), is_weight_told=True)
    made = [[_factory(run, g.value) for g in step.data] for run, step in ((pairs.a, one), (pairs.b, other))]
    for left, right in ((x, y) for x in made[0] for y in made[1] if x is not None and y is not None):
        return other_factory(divergence, left, right)
    gone, new = differing_settings(one, other)
    if gone and new and one.name == other.name:
        return divergence.cause("constant", other, f"{listed(gone)} in a, {listed(new)} in b", partner=one)
    return None


def _factory(run: StepList, value: Value) -> Step | None:
    """Return the step that makes a value of constants."""
    maker = run.maker(value)
    return maker if maker is not None and maker.name in FACTORIES else None


def other_factory(divergence: Divergence, one: Step, other: Step) -> Cause | None:
    """Return the step that makes other constants than its counterpart in a: ones for zeros."""
    sides = [step.outputs[0].stats if len(step.outputs) == 1 else None for step in (one, other)]
    if sides[0] is None or sides[1] is None or (sides[0].min, sides[0].max) == (sides[1].min, sides[1].max):
        return None
    gone, new = differing_settings(one, other) if one.name == other.name else ([], [])
    texts = [f"{step.op}({', '.join(more)})" if more else step.op for step, more in ((one, gone), (other, new))]
    if texts[0] == texts[1]:
        return None
    return divergence.cause("constant", other, f"{texts[0]} in a, {texts[1]} in b", partner=one)


# In another place --------------------------------------------------------------------------------


def moved(divergence: Divergence, name: str, step: Step, *, of_b: bool) -> Cause | None:
    """Return a step that only one side has on the way, if the code of the other one has it in another place.

    Of two operations in another order, one comes before the place that differs, the other one after it.
    """
    if name not in (step.name, step.op):
        return None
    pairs = divergence.judge.pairs
    facing = facing_step(pairs, step, of_b=of_b)
    if facing is None:
        return None
    one, other = (facing, step) if of_b else (step, facing)
    where = _given(pairs.a, one), _given(pairs.b, other)
    if where[0] == where[1] or not computes_floats(other):
        return None
    new = _new_makers(pairs, other)
    if len(new) == 1 and not of_b and all(maker.index in pairs.steps_of_a for maker in _makers(pairs.a, one)):
        return divergence.cause("extra", new[0], f"{new[0].op} has no counterpart in a")
    because = f"{other.op} stands in another order: it is given {where[0]} in a, {where[1]} in b"
    return divergence.cause("wiring", other, because, partner=one)


def exchanged_order(divergence: Divergence) -> Cause | None:
    """Return two operations of which one comes before the other in a, and after it in b.

    Only operations that each region has once are told: of others it is not known which faces which.
    """
    regions = (divergence.judge.pairs.a, divergence.in_a), (divergence.judge.pairs.b, divergence.in_b)
    once = []
    for run, region in regions:
        kinds = [(_kind(run, step), step) for step in region.computing]
        counts = Counter(kind for kind, _ in kinds)
        once.append({kind: step for kind, step in kinds if counts[kind] == 1})
    shared = [kind for kind in once[1] if kind in once[0]]
    before = [
        {(x, y) for y in shared for x in _kinds_before(run, region, own[y]) if x in shared}
        for (run, region), own in zip(regions, once)
    ]
    turned = sorted((x, y) for x, y in before[0] if (y, x) in before[1])
    if not turned:
        return None
    (first, second), (of_a, of_b) = turned[0], once
    because = f"{of_a[first].op} before {of_a[second].op} in a, {of_b[first].op} after {of_b[second].op} in b"
    return divergence.cause("wiring", of_b[first], because, partner=of_a[first])


def _kind(run: StepList, step: Step) -> str:
    """Return what a step does: all that select by rank may stand for each other, also what takes what they chose."""
    makers = _makers(run, step)[1:] if step.name in PICKING else []
    return "rank" if step.name in BY_RANK or any(maker.name in BY_RANK for maker in makers) else step.name


def _kinds_before(run: StepList, region: Region, step: Step) -> set[str]:
    """Return the kinds of the operations of a region that a step depends on."""
    inside = {each.index for each in region.steps}
    pending, visited, kinds = [step], {step.index}, set()
    while pending:
        for maker in _makers(run, pending.pop()):
            if maker.index in inside and maker.index not in visited:
                visited.add(maker.index)
                kinds.add(_kind(run, maker))
                pending.append(maker)
    return kinds


def _new_makers(pairs: Pairs, step: Step) -> list[Step]:
    """Return what makes the values that a step of b is given, where a has no such operations at all."""
    known = {other.name for other in pairs.a.steps if other.index not in pairs.steps_of_a}
    return [
        maker
        for maker in _makers(pairs.b, step)
        if maker.index not in pairs.steps and maker.name not in known and computes_floats(maker)
    ]


def _makers(run: StepList, step: Step) -> list[Step]:
    return [maker for given in step.data if (maker := run.maker(given.value)) is not None]


def facing_step(pairs: Pairs, step: Step, *, of_b: bool) -> Step | None:
    """Return the step of the other side that may be this one, in whatever place."""
    return _with_equal_weights(pairs, step, of_b) if step.weights else _alike(pairs, step, of_b)


def _with_equal_weights(pairs: Pairs, step: Step, of_b: bool) -> Step | None:
    """Return the only step of the other side with the same operation and weights."""
    run = pairs.a if of_b else pairs.b
    known: Mapping[int, Pair | int] = pairs.values if of_b else pairs.values_of_a
    wanted = [known.get(given.value.number) for given in step.weights]
    numbers = [each.a if isinstance(each, Pair) else each for each in wanted]
    alike = [s for s in run.steps if s.name == step.name and [g.value.number for g in s.weights] == numbers]
    return alike[0] if len(alike) == 1 and None not in numbers else None


def _alike(pairs: Pairs, step: Step, of_b: bool) -> Step | None:
    """Return the step that stands for one in the code of the other side's call, by its operation and its turn."""
    number = pairs.calls_of_a.get(step.call.index)
    call_a = pairs.call_in_a(step.call) if of_b else step.call
    call_b = step.call if of_b else None if number is None else pairs.b.trace.calls[number]
    if call_a is None or call_b is None:
        return None
    sides = [_named(pairs.a, call_a, step.name), _named(pairs.b, call_b, step.name)]
    own, others = sides[of_b], sides[not of_b]
    if step not in own:
        return None
    if len(own) != len(others):  # of several, one that is written in another way has none to stand for it
        paired = pairs.steps_of_a if of_b else pairs.steps
        others = [other for other in others if other.index not in paired]
        own = [step]
    return others[own.index(step)] if len(own) == len(others) else None


def _named(run: StepList, call: Call, name: str) -> list[Step]:
    return [step for step in run.by_call.get(call.index, ()) if step.name == name and not step.transparent]


def _given(run: StepList, step: Step) -> str:
    """Say what a step is given: the results of which operations or calls."""
    return " and ".join(dict.fromkeys(source_of(run, given.value, step.call) for given in step.data))


def source_of(run: StepList, value: Value, within: Call) -> str:
    """Name a value as the code of a call sees it: what an inner call returned, the result of an operation, an input."""
    root = run.root(value).number
    while within.parent is not None and any(run.root(given).number == root for given in within.inputs):
        within = within.parent  # it was handed down
    for call in within.children:
        if any(run.root(made).number == root for made in call.outputs or ()):
            return f"what {call.path.rpartition('.')[2] or call.type} returned"
    maker = run.makers.get(root)
    if maker is None or any(run.root(given).number == root for given in within.inputs):
        return value.name or "what it was given"
    return f"the result of {maker.op}"
