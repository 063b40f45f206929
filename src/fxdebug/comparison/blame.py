"""Who is to blame for a step that differs: itself, the weights it uses, or whoever handed it the wrong value."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from fxdebug.comparison.closeness import EPS, error_between
from fxdebug.comparison.judge import Judge, Judged, comparable, draws
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.opnames import family
from fxdebug.comparison.regions import Region, chain, common, place_of, region, unlike
from fxdebug.comparison.steps import Given, Step
from fxdebug.trace import Call
from fxdebug.values import Value, shape_text


@dataclass(frozen=True)
class Blame:
    """One finding: what is wrong, in which call of b, at which step of either side."""

    kind: str
    call: Call  # of b
    op: str | None
    because: str
    position: int
    measures: Measures
    error_in: float
    tolerance: float
    a: Step | None = None
    b: Step | None = None
    value_a: Value | None = None
    value_b: Value | None = None
    sure: float = 1.0
    absorbable: bool = True  # does it count only if something that follows differs, too?


class Blamer:
    """Turns judged steps into findings. Asks only about what the first differing value depends on."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._pairs = judge.pairs
        self._told: set[object] = set()

    def of(self, judged: Judged) -> Blame | None:
        """The finding behind a step that is beyond tolerance; ``None`` where the error was inherited."""
        if family(judged.partner.name) != family(judged.step.name):
            return self._between(judged, judged.a, judged.b, None)
        if judged.adds:
            return self._itself(judged)
        if judged.worst is None or judged.error_in <= self._limit(*judged.worst):
            return None
        one, other = judged.worst
        if self._pairs.are(one.value, other.value):
            return self._on_the_way(judged, one, other)
        return self._between(judged, one.value, other.value, other)

    def _limit(self, one: Given, other: Given) -> float:
        return self._judge.meter.tolerance(one.value, other.value)

    # The step itself -----------------------------------------------------------------------------

    def _itself(self, judged: Judged) -> Blame:
        step, partner = judged.step, judged.partner
        kind, because = "values", "the same inputs give other values"
        gone = list((Counter(partner.constants) - Counter(step.constants)).elements())
        new = list((Counter(step.constants) - Counter(partner.constants)).elements())
        if judged.weights is not None:
            one, other = judged.weights
            names = other.value.name or other.argument
            kind, because = "weights", f"{names} differs from {one.value.name or 'that of a'}"
        elif judged.measures.what == "shape":
            kind = "shape"
            because = f"{shape_text(judged.a.shape)} in a, {shape_text(judged.b.shape)} in b"
        elif draws(step):
            kind, because = "random", "random numbers were drawn: seed both runs alike"
        elif (gone or new) and partner.name == step.name:
            kind = "constant"
            because = f"{_listed(gone) or 'nothing'} in a, {_listed(new) or 'nothing'} in b"
        elif judged.measures.what == "nonfinite":
            kind, because = "nonfinite", "NaN or infinity on one side only"
        elif missing := self._unused(partner, step):
            kind, because = "missing", missing
        elif partner.name != step.name:
            because = f"{partner.name} in a, {step.name} in b"
        elif (turned := self._rearranged(judged)) is not None:
            return turned
        return self._blame(kind, step.call, step.op, because, judged, absorbable=not judged.weights)

    def _unused(self, partner: Step, step: Step) -> str:
        """A weight that only one of the two uses (a bias that was left out)."""
        if len(partner.weights) > len(step.weights):
            spare = [given.value.name or given.argument for given in partner.weights[len(step.weights) :]]
            return f"{_listed(spare)} is used in a only"
        if len(partner.data) > len(step.data):
            return f"{_listed(given.argument for given in partner.data[len(step.data) :])} is given in a only"
        return ""

    def _rearranged(self, judged: Judged) -> Blame | None:
        """Statistics do not see the order of elements: a view of another kind on the way to the step is the cause."""
        if self._pairs.steps[judged.step.index].how not in ("path", "mapping"):
            return None
        for one, other in zip(judged.partner.data, judged.step.data):
            ways = chain(self._pairs.a, one.value), chain(self._pairs.b, other.value)
            seen = [[(step.name, step.constants) for step in way] for way in ways]
            if seen[0] == seen[1] or not all(seen):
                continue
            place = next((i for i, (x, y) in enumerate(zip(*seen)) if x != y), min(map(len, seen)) - 1)
            step = ways[1][min(place, len(ways[1]) - 1)]
            left, right = (
                ", ".join(f"{name}({', '.join(constants)})" for name, constants in way[place:]) or "nothing"
                for way in seen
            )
            return self._blame("constant", step.call, step.op, f"{left} in a, {right} in b", judged, step=step)
        return None

    # What it was handed --------------------------------------------------------------------------

    def _on_the_way(self, judged: Judged, one: Given, other: Given) -> Blame | None:
        """Both sides hand on the same value, but not as it was: a cast or a view between changed it."""
        root_a, root_b = self._pairs.a.root(one.value), self._pairs.b.root(other.value)
        if self._differ(root_a, root_b):
            return None
        for step in chain(self._pairs.b, other.value):
            made = step.outputs[0]
            if self._pairs.of_step(step) is not None or not comparable(root_a, made):
                continue
            error = error_between(root_a.stats, made.stats)
            if error is None or error <= self._judge.meter.tolerance(root_a, root_a):
                continue
            changed = made.dtype != root_b.dtype
            because = f"{root_b.dtype} becomes {made.dtype}" if changed else "the elements are not what they were"
            return self._blame("dtype" if changed else "values", step.call, step.op, because, judged, step=step)
        return None

    def _between(self, judged: Judged, a: Value, b: Value, given: Given | None) -> Blame | None:
        """The values are not each other's partners: something between here and what agrees is another on one side."""
        pairs = self._pairs
        through = given is None
        known_a = lambda value: pairs.a.root(value).number in pairs.values_of_a  # noqa: E731
        known_b = lambda value: pairs.b.root(value).number in pairs.values  # noqa: E731
        one = region(pairs.a, a, known_a, through=through)
        other = region(pairs.b, b, known_b, through=through)
        for value in other.frontier:
            partner = pairs.of_value(value)
            if partner is not None and self._differ(partner, value):
                return None  # inherited from there
        key = (tuple(step.index for step in one.steps), tuple(step.index for step in other.steps), b.number)
        if key in self._told:
            return None
        self._told.add(key)
        return self._compared(judged, a, b, given, one, other)

    def _compared(
        self, judged: Judged, a: Value, b: Value, given: Given | None, one: Region, other: Region
    ) -> Blame | None:
        call, inner = (judged.step.call, None) if given is None else place_of(self._pairs.b, judged.step, given)
        consumer = judged.step.op if inner is None else inner.type
        gone, new = unlike(one, other)
        if other.doing:
            # what is in the region may be spread over several calls: the deepest that has all of it
            call = common([step.call for step in other.doing]) or call
        if not one.doing and not other.doing:
            return self._rewired(judged, a, b, call, consumer)
        if gone and not new:
            names = _listed(name for name, _ in gone)
            home = self._home(gone[0][1], call)
            return self._blame(
                "missing", home, gone[0][0], f"{names} of a ({gone[0][1].node.source or gone[0][1].call.path}) "
                "has no counterpart in b", judged, a=a, b=b, partner=gone[0][1], step=_last(other),
            )  # fmt: skip
        if new and not gone:
            names = _listed(name for name, _ in new)
            step = new[0][1]
            return self._blame(
                "extra", step.call, step.op, f"{names} has no counterpart in a", judged, a=a, b=b,
                partner=_last(one), step=step,
            )  # fmt: skip
        if not new and not gone:
            for left, right in zip(one.doing, other.doing):
                if left.constants != right.constants:
                    because = f"({_listed(left.constants)}) in a, ({_listed(right.constants)}) in b"
                    return self._blame(
                        "constant", right.call, right.op, because, judged, a=a, b=b, partner=left, step=right
                    )
            last = other.doing[-1]
            return self._blame(
                "values", last.call, last.op, "the same operations give other values", judged, a=a, b=b,
                partner=_last(one), step=last,
            )  # fmt: skip
        because = f"{_listed(name for name, _ in gone)} in a, {_listed(name for name, _ in new)} in b"
        step = new[0][1]
        return self._blame("values", call, step.op, because, judged, a=a, b=b, partner=gone[0][1], step=step)

    def _rewired(self, judged: Judged, a: Value, b: Value, call: Call, consumer: str) -> Blame | None:
        """Nothing is between, so another value is handed on, or the right one was written to."""
        pairs = self._pairs
        maker = pairs.b.made.get(b.number)
        wanted = pairs.values_of_a.get(pairs.a.root(a).number)
        right = None if wanted is None else pairs.b.values[wanted]
        if maker is not None and right is not None and _shares(right, b) and b.number > right.number:
            because = f"{maker.op} wrote into what {judged.step.op} still needed"
            return self._blame("overwritten", maker.call, maker.op, because, judged, a=a, b=b, step=maker)
        given = pairs.of_value(b)
        where_a = _made_in(pairs.a.made.get(pairs.a.root(a).number), a)
        where_b = _made_in(pairs.b.made.get(pairs.b.root(b).number), b)
        if given is not None and self._differ(given, b):
            return None
        because = f"it is given the result of {where_a} in a, of {where_b} in b"
        return self._blame("wiring", call, consumer, because, judged, a=a, b=b)

    def _home(self, step: Step, otherwise: Call) -> Call:
        """The call of b in which a step of a should have been."""
        call: Call | None = step.call
        while call is not None:
            found = self._pairs.calls_of_a.get(call.index)
            if found is not None:
                home = self._pairs.b.trace.calls[found]
                return home if len(home.path) >= len(otherwise.path) or not otherwise.path else otherwise
            call = call.parent
        return otherwise

    def _differ(self, a: Value, b: Value) -> bool:
        if not comparable(a, b):
            return False
        measures = self._judge.meter(a, b)
        limit = self._judge.clean if a.dtype in EPS else 0.0
        return measures.what != "unknown" and measures.error > limit

    def _blame(
        self,
        kind: str,
        call: Call,
        op: str | None,
        because: str,
        judged: Judged,
        *,
        step: Step | None = None,
        partner: Step | None = None,
        a: Value | None = None,
        b: Value | None = None,
        absorbable: bool = True,
    ) -> Blame:
        measures = judged.measures
        if a is not None and b is not None and comparable(a, b):
            measures = self._judge.meter(a, b)
        found = self._pairs.steps.get(judged.step.index)
        return Blame(
            kind, call, op, because, judged.step.index, measures, min(judged.error_in, math.inf), judged.tolerance,
            partner or judged.partner, step or judged.step, a or judged.a, b or judged.b,
            1.0 if found is None else found.sure, absorbable,
        )  # fmt: skip


def _listed(names: object) -> str:
    held = [str(name) for name in names]  # type: ignore[attr-defined]
    return ", ".join(held[:4]) + (f" and {len(held) - 4} more" if len(held) > 4 else "")


def _last(found: Region) -> Step | None:
    return found.doing[-1] if found.doing else None


def _shares(a: Value, b: Value) -> bool:
    return a.storage is not None and a.storage == b.storage


def _made_in(step: Step | None, value: Value) -> str:
    if step is None:
        return value.name or "an input"
    return f"{step.call.path or step.call.type}/{step.op}"
