"""The steps between what the two sides agree on and a value on which they do not: that is where the fault is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fxdebug.comparison.pairing.align import in_order
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.tolerance import visible
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import (
    ACTIVATIONS,
    BIAS_FIRST,
    FACTORIES,
    REPEATING,
    SLICES,
    STEPS_OF,
    TRANSPARENT,
    normalized_constants,
    role,
)

DEEPEST = 400  # steps that a region may have: more than that explains nothing


@dataclass(frozen=True)
class Region:
    """Steps without a partner that a value comes from, and the paired values they begin with."""

    steps: tuple[Step, ...]  # in execution order, transparent ones too
    frontier: tuple[Value, ...]
    masks: tuple[Value, ...] = ()  # without a partner: every implementation writes them in its own way
    again: frozenset[int] = frozenset()  # steps that do once more what one before did

    @property
    def doing(self) -> tuple[Step, ...]:
        """The steps that compute."""
        return tuple([step for step in self.steps if not step.transparent])


def region(run: StepList, value: Value, paired: Callable[[Value], bool], *, through: bool = False) -> Region:
    """Where a value comes from, back to what ``paired`` says has a partner. ``through``: even if it has one itself."""
    found: dict[int, Step] = {}
    frontier: dict[int, Value] = {}
    masks: dict[int, Value] = {}
    pending: list[tuple[Value, bool]] = [(value, through)]
    while pending and len(found) < DEEPEST:
        at, anyway = pending.pop()
        if not anyway and paired(at):
            frontier[at.number] = at
            continue
        if found and (visible(at) is not None or at.dtype == "bool"):
            masks[at.number] = at
            continue
        maker = run.made.get(at.number)
        if maker is None or maker.index in found:
            continue
        found[maker.index] = maker
        # a view of what is to be looked through is looked through as well
        pending += [(given.value, anyway and maker.transparent) for given in maker.inputs if not given.weight]
    steps = tuple([found[index] for index in sorted(found)])
    return Region(steps, tuple(frontier.values()), tuple(masks.values()), _again(run, steps))


def _again(run: StepList, steps: Iterable[Step]) -> frozenset[int]:
    """The steps that do with the same values what one before them did."""
    seen: dict[object, int] = {}
    same: dict[int, int] = {}  # the result of a step that does something again → that of the first
    found = set()
    for step in steps:
        roots = [run.root(given.value).number for given in step.inputs]
        key = (step.name, tuple([same.get(root, root) for root in roots]), step.constants)
        first = seen.setdefault(key, step.index)
        if first != step.index and roots and len(step.outputs) == 1:
            found.add(step.index)
            made = next(other for other in steps if other.index == first).outputs
            if len(made) == 1:
                same[run.root(step.outputs[0]).number] = run.root(made[0]).number
    return frozenset(found)


def written_out(steps: Iterable[Step]) -> list[tuple[str, Step]]:
    """The names of what steps do, fused operations one by one; what takes parts and makes constants left out."""
    doing = [step for step in steps if looks_up(step) or step.name not in SLICES | FACTORIES | REPEATING]
    return [(name, step) for step in doing for name in _parts(step)]


def looks_up(step: Step) -> bool:
    """Does it take rows out of a table of weights? However it is written, that is what an embedding does."""
    tables = [given.value for given in step.weights if given.value.dtype in EPS]
    return step.name == "getitem" and bool(tables) and len(tables[0].shape) > 1


def _parts(step: Step) -> tuple[str, ...]:
    if looks_up(step):
        return ("embedding",)
    if step.name != "scaled_dot_product_attention":
        return STEPS_OF.get(step.name, (step.name,))
    masked = len(step.data) > 3 or "is_causal=True" in step.constants
    names = STEPS_OF[f"masked {step.name}" if masked else step.name]
    return tuple([name for name in names if name != "mul" or "scale=1.0" not in step.constants])


def fractions(step: Step) -> list[float]:
    """The numbers written in a step that are no sizes, dimensions or counts."""
    found = []
    for text in normalized_constants(step.constants):
        try:
            number = float(text)
        except ValueError:
            continue
        if number != int(number) if math.isfinite(number) else False:
            found.append(number)
    return found


def products(step: Step) -> list[tuple[Value, ...]]:
    """The pairs of values that a step multiplies with each other, as matrices."""
    data = tuple([given.value for given in step.data])
    if step.name == "scaled_dot_product_attention" and len(data) >= 3:
        return [data[:2]]
    if step.name in BIAS_FIRST and len(data) == 3:
        return [data[1:]]
    return [data[:2]] if step.name in ("matmul", "einsum", "baddbmm") and len(data) == 2 else []


def origin(run: StepList, value: Value) -> Value:
    """What a value repeats: heads of keys are repeated for several queries here and shared there."""
    at = run.root(value)
    for _ in range(4):
        maker = run.made.get(at.number)
        if maker is None or maker.name not in REPEATING or not maker.data:
            break
        at = run.root(maker.data[0].value)
    return at


def parts(run: StepList, step: Step) -> list[Value]:
    """What is taken out of a step's result piece by piece (a fused projection), the result itself included."""
    found = list(step.outputs)
    for value in step.outputs:
        for user in run.users.get(run.root(value).number, ()):
            if user.name in SLICES:
                found += user.outputs
    return found


def unlike(a: Region, b: Region) -> tuple[list[tuple[str, Step]], list[tuple[str, Step]]]:
    """What the one region does that the other does not, and the other way round."""
    one, other = (written_out([step for step in side.doing if step.index not in side.again]) for side in (a, b))
    same = in_order(one, other, _alike, lambda pair: pair[0])
    left, right = {id(x) for x, _ in same}, {id(y) for _, y in same}
    gone, new = [x for x in one if id(x) not in left], [y for y in other if id(y) not in right]
    return _whole(_not_idle(gone, b)), _whole(_not_idle(new, a))


def _not_idle(parts: list[tuple[str, Step]], other: Region) -> list[tuple[str, Step]]:
    """Parts of fused steps, without those that the other side has as steps that changed nothing (a tiny epsilon)."""
    idle = Counter(role(s.name) for s in other.steps if s.transparent and s.name not in TRANSPARENT)
    found = []
    for name, step in parts:
        if name != step.name and idle[role(name)]:
            idle[role(name)] -= 1
        else:
            found.append((name, step))
    return found


def _alike(a: tuple[str, Step], b: tuple[str, Step]) -> float:
    return 1.0 if a[0] == b[0] else 0.9 if role(a[0]) == role(b[0]) else 0.0


def _whole(parts: list[tuple[str, Step]]) -> list[tuple[str, Step]]:
    """A fused operation of which no part is left out, as one again."""
    counts = Counter(step.index for _, step in parts)
    found: dict[int, tuple[str, Step]] = {}
    for place, (name, step) in enumerate(parts):
        if counts[step.index] == len(_parts(step)):
            found.setdefault(-1 - step.index, (step.op, step))
        else:
            found[place] = (name, step)
    return list(found.values())


def chain(run: StepList, value: Value) -> list[Step]:
    """The views and copies between a value and what it is a view of, in execution order."""
    steps: list[Step] = []
    at = value
    while (maker := run.made.get(at.number)) is not None and maker.transparent and len(steps) < DEEPEST:
        steps.append(maker)
        source = next((given for given in maker.inputs if given.value.numel == at.numel), None)
        if source is None or source.value.number == at.number:
            break
        at = source.value
    return steps[::-1]


def place_of(pairs: Pairs, step: Step, a: Value, b: Value) -> tuple[Call, Call | None]:
    """The call of b in whose body a step is handed ``b`` for ``a``, and the call in there that it is handed to.

    A value that a call passes on from its own arguments was chosen by whoever called it.
    """
    call, inner = step.call, None
    while call.parent is not None and _is_given(pairs.b, call, b):
        partner = pairs.of_call(call)
        if partner is not None and not _is_given(pairs.a, partner, a):
            break
        wanted = pairs.values_of_a.get(pairs.a.root(a).number)
        if wanted is not None and _is_given(pairs.b, call, pairs.b.values[wanted]):
            break  # it had the right one, too
        call, inner = call.parent, call
    return call, inner


def _is_given(run: StepList, call: Call, value: Value) -> bool:
    root = run.root(value).number
    return any(run.root(given).number == root for given in call.inputs)


def common(calls: Iterable[Call]) -> Call | None:
    """The deepest call that all of these are in."""
    lines = []
    for call in calls:
        line = [call]
        while line[-1].parent is not None:
            line.append(line[-1].parent)
        lines.append(line[::-1])
    if not lines:
        return None
    shared = None
    for level in zip(*lines):
        if any(call is not level[0] for call in level):
            break
        shared = level[0]
    return shared


def computes(step: Step) -> bool:
    """Does it work on floating numbers that it is given? Masks, positions and constants are made by others."""
    return any(v.dtype in EPS for v in step.outputs) and any(g.value.dtype in EPS for g in step.inputs)


def most_informative(steps: list[Step], gone: list[Step] | None = None) -> Step:
    """The step to name among several: an activation, else the last that computes, which made what differs.

    Where a has a whole call or a whole recurrence in one step, no single one of many stands out: of the first call
    in b that has some of it, the last step.
    """
    computing = [step for step in steps if computes(step)] or steps
    if not all(small(step) for step in gone or ()):
        around = common(step.call for step in computing)
        if any(step.loose for step in gone or ()) and computing[0].call is not around:
            computing = [s for s in computing if _below(s.call, around) is _below(computing[0].call, around)]
        return computing[-1]
    return next((step for step in computing if step.name in ACTIVATIONS), computing[-1])


def _below(call: Call, top: Call | None) -> Call:
    """The call right below another one that a call is in."""
    while call.parent is not None and call.parent is not top:
        call = call.parent
    return call


def small(step: Step) -> bool:
    """Is it a step of its own, not a recurrence or a call whose inside nobody knows?"""
    return not step.loose and len(step.weights) <= 2
