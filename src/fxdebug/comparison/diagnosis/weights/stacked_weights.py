"""Weights that one model keeps in a stack and the other one in a list, as for experts, compared slice by slice.

``gate_up`` of shape experts × 2·width × hidden stands for a ``gate`` and an ``up`` per expert. Whatever the layout of a
slice, the sum of its elements is the sum of the weights that it stands for.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fxdebug.comparison.diagnosis.cause import Cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.weights.weight_slices import Weight, Weights, numberless
from fxdebug.comparison.rounding import half_step
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import FAR, HALF, NEARLY_ALL, SAME_SUM
from fxdebug.comparison.tolerance import rms_of
from fxdebug.data.trace import TraceData
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import SLICES, TRANSPARENT, family

MOST_FUSED = 3  # weights of an expert that are one in the other model


@dataclass(frozen=True)
class SlicedWeight:
    """A weight for each of several experts: the slices of a stack, or a list of weights whose names count them."""

    name: str
    members: tuple[Weight, ...]
    totals: tuple[float, ...]  # the sum of each slice
    numel: int  # of a slice
    size: float  # root of the sum of squares of a slice, about

    @property
    def is_stack(self) -> bool:
        """Is it one weight?"""
        return len(self.members) == 1

    def slice(self, place: int) -> str:
        """Return the name of a slice."""
        return f"slice {place} of {self.name}" if self.is_stack else self.members[place].name

    def line_sums(self, place: int | None = None) -> Iterator[tuple[float, ...]]:
        """Yield the sums of rows and of columns, over all slices; of one slice where that is known."""
        for dimension in (-2, -1):
            members = self.members if place is None else () if self.is_stack else (self.members[place],)
            known = [weight.sums.get(len(weight.parameter.shape) + dimension, ()) for weight in members]
            yield tuple(map(math.fsum, zip(*known)))


@dataclass
class StackedWeights:
    """Find the slice of a stack, or the weight that stands for it, that explains a cause."""

    judge: Judge
    reported: set[str] = field(default_factory=set)
    _known: tuple[list[SlicedWeight], list[SlicedWeight]] | None = None

    def explain(self, cause: Cause, result: StepResult | None) -> Cause | None:
        """Return the slice behind a cause, else the cause itself; ``None`` where the weight was named before."""
        certain = cause.kind in ("constant", "weights") and cause.matched_by in ("path", "mapping")
        if certain or cause.kind in ("dtype", "input", "raised", "nonfinite", "random"):
            return cause
        one, other = self._sliced()
        run = self.judge.pairs.b
        starts = [step for step in (cause.b, None if result is None else result.step) if step is not None]
        near = self._weights_before(starts) if one and other else set()
        for sliced in other:
            if near.isdisjoint(weight.name for weight in sliced.members):
                continue
            for ours, theirs in _counterparts(sliced, other, one):
                wrong = self._wrong_slice(ours, theirs) or self._wrong_lines(ours, theirs)
                if wrong is None:
                    continue
                weight, place, because = wrong
                if weight.name in self.reported:
                    return None
                self.reported.add(weight.name)
                step = _user_of(run, weight, place) or cause.b
                call, op = (cause.call, cause.op) if step is None else (step.call, step.op)
                return replace(cause, kind="weights", call=call, op=op, because=because, b=step, absorbable=False)
        return cause

    def _sliced(self) -> tuple[list[SlicedWeight], list[SlicedWeight]]:
        """Return the sliced weights of both runs; none where neither has a stack."""
        if self._known is None:
            one, other = (_sliced_weights(run.trace) for run in (self.judge.pairs.a, self.judge.pairs.b))
            if not any(sliced.is_stack for sliced in (*one, *other)):
                one, other = [], []
            self._known = one, other
        return self._known

    def _weights_before(self, starts: Sequence[Step]) -> set[str]:
        """Return the names of the weights that some steps depend on, back to equal values that another call made."""
        run, pairs = self.judge.pairs.b, self.judge.pairs
        inside = {call.index for step in starts for call in step.call.walk()}
        pending = {step.index for step in starts}
        visited, names = set(pending), set[str]()
        while pending and len(visited) < FAR:
            step = run.steps[max(pending)]
            pending.discard(step.index)
            names |= {given.value.name for given in step.weights if given.value.name is not None}
            for given in step.data:
                maker, partner = run.makers.get(given.value.number), pairs.value_in_a(given.value)
                clean = partner is not None and given.value.dtype in EPS and pairs.is_firm(given.value)
                if maker is None:
                    continue
                # the slices of an equal result may be in other places
                if maker.call.index not in inside and clean and partner and self.judge.agree(partner, given.value):
                    continue
                pending |= {maker.index} - visited
                visited.add(maker.index)
        return names

    # Which slice ---------------------------------------------------------------------------------

    def _wrong_slice(
        self, ours: Sequence[SlicedWeight], theirs: Sequence[SlicedWeight]
    ) -> tuple[Weight, int, str] | None:
        """Return the weight, the slice and the reason where a slice has another sum than that of a."""
        mine, wanted = _added(ours), _added(theirs)
        limit = _limit(ours, theirs)
        for place, number in enumerate(mine):
            if abs(number - wanted[place]) <= limit:
                continue
            weight = ours[0].members[0 if ours[0].is_stack else place]
            names = " and ".join(sliced.slice(place) for sliced in theirs)
            where = " and ".join(sliced.slice(place) for sliced in ours)
            instead = next((i for i, other in enumerate(wanted) if abs(number - other) <= limit), None)
            if abs(number) <= limit * SAME_SUM:
                return weight, place, f"{where} is zero, {names} of a is not"
            if instead is not None:
                given = " and ".join(sliced.slice(instead) for sliced in theirs)
                return weight, place, f"{where} holds {given} of a, not {names}"
            return weight, place, f"{where} holds other numbers than {names} of a"
        return None

    def _wrong_lines(
        self, ours: Sequence[SlicedWeight], theirs: Sequence[SlicedWeight]
    ) -> tuple[Weight, int, str] | None:
        """Return the stack whose rows are in another order than in other layers, in all slices or in one."""
        if len(ours) != 1 or not ours[0].is_stack or len(theirs) < 2:
            return None
        layers = [layer for layer in self._sliced()[1] if numberless(layer.name) == numberless(ours[0].name)]
        around = layers.index(ours[0])
        usual = self._orders(layers[:around], layers) or self._orders(layers[around + 1 :], layers)
        order, weight = _order(ours[0], theirs), ours[0].members[0]
        if order is not None and (not usual or any(_same(order, other) for other in usual)):
            return None
        names = [numberless(sliced.name) for sliced in theirs]
        if order is not None:
            first = next(i for i, (x, y) in enumerate(zip(order[1], usual[-1][1])) if x != y)
            given, wanted = (names[side[1][first][0]] for side in (order, usual[-1]))
            return weight, 0, f"line {first} of {weight.name} is of {given}, in other layers of {wanted}"
        for known in usual:
            place = _exchanged_slice(ours[0], theirs, known)
            if place is not None:
                return weight, place, f"slice {place} of {weight.name} has {' and '.join(names)} exchanged"
        because = f"lines of a slice of {weight.name} are in other places than in other layers"
        return (weight, 0, because) if usual else None

    def _orders(self, layers: Iterable[SlicedWeight], beside: Sequence[SlicedWeight]) -> list[Order]:
        """Return the orders of the lines in some layers, as far as they are known."""
        return [
            order
            for layer in layers
            if layer.name not in self.reported
            for mine, group in _counterparts(layer, beside, self._sliced()[0])
            if mine == (layer,) and (order := _order(layer, group)) is not None
        ]


Facing = tuple[tuple[SlicedWeight, ...], tuple[SlicedWeight, ...]]
"""Weights of b and those of a that they stand for, added slice by slice."""

Order = tuple[int, tuple[tuple[int, int], ...]]
"""The dimension of the lines (0 for rows, 1 for columns), and for each line the weight that it is of, and its place."""


def _sliced_weights(trace: TraceData) -> list[SlicedWeight]:
    """Return the stacks of a run, and the lists of weights whose names count them."""
    weights = Weights(trace)
    known = [weight for name in weights.names if (weight := weights.find(name)) is not None]
    found: list[SlicedWeight] = []
    lists: dict[tuple[str, tuple[int, ...]], dict[int, Weight]] = {}
    for weight in known:
        shape = weight.parameter.shape
        if len(shape) == 3 and len(weight.sums.get(0, ())) == shape[0] and min(shape) > 1:
            found.append(_sliced(weight.name, (weight,), weight.sums[0]))
        elif len(shape) == 2:
            parts = weight.name.split(".")
            for i, part in enumerate(parts):
                if part.isdigit():
                    pattern = ".".join([*parts[:i], "*", *parts[i + 1 :]])
                    lists.setdefault((pattern, tuple(shape)), {})[int(part)] = weight
    for (pattern, _), members in lists.items():
        ordered = tuple([members[i] for i in sorted(members)])
        totals = [math.fsum(next(iter(weight.sums.values()))) for weight in ordered]
        if len(ordered) > 1 and sorted(members) == list(range(len(ordered))):
            found.append(_sliced(pattern, ordered, totals))
    return found


def _sliced(name: str, members: tuple[Weight, ...], totals: Sequence[float]) -> SlicedWeight:
    numel = sum(math.prod(weight.parameter.shape) for weight in members) // len(totals)
    size = max(rms_of(weight.parameter.stats) if weight.parameter.stats else 0.0 for weight in members)
    return SlicedWeight(name, members, tuple(totals), numel, size * math.sqrt(numel))


def _counterparts(sliced: SlicedWeight, other: Iterable[SlicedWeight], one: Iterable[SlicedWeight]) -> Iterator[Facing]:
    """Yield the weights of b and those of a that hold the same numbers in most slices, where one of them is a stack."""
    candidates = [x for x in one if len(x.totals) == len(sliced.totals)]
    beside = [x for x in other if len(x.totals) == len(sliced.totals) and x is not sliced]
    groups: list[Facing] = [((sliced,), group) for group in _groups(candidates)]
    groups += [((sliced, *more), (x,)) for more in _groups(beside) for x in candidates if sliced.name < more[0].name]
    fitting: list[tuple[int, int, int, Facing]] = []
    for ours, theirs in groups:
        if sum(x.numel for x in ours) != sum(x.numel for x in theirs) or not any(x.is_stack for x in (*ours, *theirs)):
            continue
        limit = _limit(ours, theirs)
        mine, wanted = _added(ours), _added(theirs)
        equal = sum(abs(x - y) <= limit for x, y in zip(mine, wanted))
        held = sum(any(abs(x - y) <= limit for y in wanted) for x in mine)
        if held >= HALF * len(mine):
            fitting.append((-equal, -held, len(fitting), (ours, theirs)))
    yield from [facing for *_, facing in sorted(fitting)[:1]]


def _groups(weights: Sequence[SlicedWeight]) -> Iterator[tuple[SlicedWeight, ...]]:
    """Yield single weights, and weights that belong to the same modules or to modules beside one another."""
    yield from ((weight,) for weight in weights)
    places: dict[str, list[SlicedWeight]] = {}
    for weight in weights:
        around = weight.name.rpartition(".*.")[0] or weight.name.rpartition(".")[0]
        places.setdefault(around, []).append(weight)
    for beside in places.values():
        for count in range(2, MOST_FUSED + 1):
            yield from itertools.combinations(beside, count)


def _added(weights: Sequence[SlicedWeight]) -> list[float]:
    return [math.fsum(numbers) for numbers in zip(*(weight.totals for weight in weights))]


def _limit(ours: Sequence[SlicedWeight], theirs: Sequence[SlicedWeight]) -> float:
    """Return how far apart the sums of equal slices may be."""
    size = math.sqrt(sum(sliced.size**2 for sliced in theirs)) or math.sqrt(sum(sliced.size**2 for sliced in ours))
    kinds = ours[0].members[0].parameter.dtype, theirs[0].members[0].parameter.dtype
    return max(SAME_SUM, 3 * half_step(*kinds)) * size


# The lines of slices -------------------------------------------------------------------------------


def _order(stack: SlicedWeight, theirs: Sequence[SlicedWeight]) -> Order | None:
    """Return of which weights of a the lines of a stack are, by their sums over all slices; ``None`` if of none."""
    pools = [list(sliced.line_sums()) for sliced in theirs]
    limit = _limit((stack,), theirs)
    for dimension, lines in enumerate(stack.line_sums()):
        for side in (dimension, 1 - dimension):
            known = [(number, (i, j)) for i, sums in enumerate(pools) for j, number in enumerate(sums[side])]
            if len(known) != len(lines):
                continue
            nearest = [min(known, key=lambda entry: abs(entry[0] - line)) for line in lines]
            close = sum(abs(number - line) <= limit for (number, _), line in zip(nearest, lines))
            if close >= NEARLY_ALL * len(lines):
                return dimension, tuple([place for _, place in nearest])
    return None


def _same(a: Order, b: Order) -> bool:
    same = sum(x == y for x, y in zip(a[1], b[1]))
    return a[0] == b[0] and len(a[1]) == len(b[1]) and same >= NEARLY_ALL * len(a[1])


def _exchanged_slice(stack: SlicedWeight, theirs: Sequence[SlicedWeight], usual: Order) -> int | None:
    """Return the slice in which two of the weights that it stands for have changed places."""
    dimension, places = usual
    lines = list(stack.line_sums())[dimension]
    limit = _limit((stack,), theirs)
    side = next((s for s in (0, 1) if sum(len(list(x.line_sums())[s]) for x in theirs) == len(lines)), None)
    if side is None or len(places) != len(lines) or any(sliced.is_stack for sliced in theirs):
        return None
    whole = [list(sliced.line_sums())[side] for sliced in theirs]
    off = [line - whole[i][j] for line, (i, j) in zip(lines, places)]
    for place in range(len(stack.totals)):
        own = [list(sliced.line_sums(place))[side] for sliced in theirs]
        for one, other in itertools.combinations(range(len(theirs)), 2):
            swapped = {one: other, other: one}
            gaps = [own[swapped.get(i, i)][j] - own[i][j] for i, j in places if j < len(own[swapped.get(i, i)])]
            if len(gaps) == len(off) and all(abs(x - y) <= limit for x, y in zip(off, gaps)):
                return place
    return None


# The step that uses it -----------------------------------------------------------------------------


def _user_of(run: StepList, weight: Weight, place: int) -> Step | None:
    """Return the product that uses a slice of a weight, else the first step that uses the weight."""
    users = [step for step in run.steps if any(given.value.name in weight.parameter.names for given in step.weights)]
    cut = [step for step in users if step.name in SLICES]
    chosen = [step for step in cut if step.constants and re.fullmatch(rf"\D*{place}(\.0)?\D*", step.constants[0])]
    for step in (*chosen, *(step for step in users if step not in chosen)):
        at: Step | None = step
        for _ in range(4):
            if at is None or family(at.name) == "product":
                break
            if at.name not in SLICES | TRANSPARENT:
                at = None
                break
            following = [user for value in at.outputs for user in run.users.get(run.root(value).number, ())]
            at = next((user for user in following if user is not at), None)
        if at is not None and family(at.name) == "product":
            return at
    return next(iter(users), None)
