"""The steps between what the two sides agree on and a value on which they do not: that is where the fault is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fxdebug.comparison.opnames import STEPS_OF
from fxdebug.comparison.order import in_order
from fxdebug.comparison.steps import Given, Run, Step
from fxdebug.trace import Call
from fxdebug.values import Value

DEEPEST = 400  # steps that a region may have: more than that explains nothing


@dataclass(frozen=True)
class Region:
    """Steps without a partner that a value comes from, and the paired values they begin with."""

    steps: tuple[Step, ...]  # in execution order, transparent ones too
    frontier: tuple[Value, ...]

    @property
    def doing(self) -> tuple[Step, ...]:
        """The steps that compute."""
        return tuple([step for step in self.steps if not step.transparent])


def region(run: Run, value: Value, paired: Callable[[Value], bool], *, through: bool = False) -> Region:
    """Where a value comes from, back to what ``paired`` says has a partner. ``through``: even if it has one itself."""
    found: dict[int, Step] = {}
    frontier: dict[int, Value] = {}
    pending: list[tuple[Value, bool]] = [(value, through)]
    while pending and len(found) < DEEPEST:
        at, anyway = pending.pop()
        if not anyway and paired(at):
            frontier[at.number] = at
            continue
        maker = run.made.get(at.number)
        if maker is None or maker.index in found:
            continue
        found[maker.index] = maker
        # a view of what is to be looked through is looked through as well
        pending += [(given.value, anyway and maker.transparent) for given in maker.inputs if not given.weight]
    return Region(tuple([found[index] for index in sorted(found)]), tuple(frontier.values()))


def written_out(steps: Iterable[Step]) -> list[tuple[str, Step]]:
    """The names of what steps do, fused operations one by one."""
    return [(name, step) for step in steps for name in STEPS_OF.get(step.name, (step.name,))]


def unlike(a: Region, b: Region) -> tuple[list[tuple[str, Step]], list[tuple[str, Step]]]:
    """What the one region does that the other does not, and the other way round."""
    one, other = written_out(a.doing), written_out(b.doing)
    same = in_order(one, other, lambda x, y: float(x[0] == y[0]), lambda pair: object())
    left, right = [id(x) for x, _ in same], [id(y) for _, y in same]
    return [x for x in one if id(x) not in left], [y for y in other if id(y) not in right]


def chain(run: Run, value: Value) -> list[Step]:
    """The views and copies between a value and what it is a view of, in execution order."""
    steps: list[Step] = []
    at = value
    while (maker := run.made.get(at.number)) is not None and maker.transparent and len(steps) < DEEPEST:
        steps.append(maker)
        source = next((given for given in maker.inputs if given.value.numel == at.numel), None)
        if source is None:
            break
        at = source.value
    return steps[::-1]


def place_of(run: Run, step: Step, given: Given) -> tuple[Call, Call | None]:
    """The call in whose body a step is handed a value, and the call in there that it is handed to.

    A value that a call passes on from its own arguments was chosen by whoever called it.
    """
    call, inner = step.call, None
    root = run.root(given.value).number
    while call.parent is not None:
        if not any(run.root(value).number == root for value in call.inputs):
            break
        call, inner = call.parent, call
    return call, inner


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
