"""Values that a run makes without data and trained weights: positions, angles, masks, distances.

Every implementation arranges such tables in its own way: halves or all of the angles, rows or columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fxdebug.comparison.constants import number_in
from fxdebug.comparison.diagnosis.cause import listed
from fxdebug.comparison.diagnosis.region import Region
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import NEAR, SAME_SUM
from fxdebug.comparison.tolerance import error_between
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import COPYING, FACTORIES, SLICES

PRODUCTS = frozenset(["mul", "outer", "matmul", "einsum", "ger"])
POWERS = frozenset(["pow", "rpow", "exp"])


class Tables:
    """Tell the tables of one run from its data."""

    def __init__(self, run: StepList) -> None:
        self._run = run
        self._trained = {name for each in run.trace.parameters if each.kind == "parameter" for name in each.names}
        self._known: dict[int, bool] = {}

    def has(self, value: Value) -> bool:
        """Is a value made of constants, buffers and integers alone?"""
        pending = [value]
        while pending:
            at = pending[-1]
            if at.number in self._known:
                pending.pop()
                continue
            maker = self._run.makers.get(at.number)
            if maker is None:
                buffer = at.name is not None and at.name not in self._trained
                self._known[at.number] = buffer or at.dtype not in EPS  # a float may have come from anywhere
                continue
            sources = [given.value for given in maker.inputs if given.value.number < at.number]
            left = [source for source in sources if source.number not in self._known]
            if left:
                pending += left
                continue
            self._known[at.number] = all(self._known[source.number] for source in sources)
        return self._known[value.number]

    def makes(self, step: Step) -> bool:
        """Does a step make nothing but tables?"""
        return all(map(self.has, step.results))


# Tables that differ --------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableDifference:
    """Two tables with other numbers: the step of b that made its own, that of a where it has one, and the reason."""

    a: Value
    b: Value
    step: Step
    partner: Step | None
    because: str
    is_constant: bool  # is it one number that is written differently?


def whole_table(pairs: Pairs, tables: tuple[Tables, Tables], a: Step, b: Step) -> tuple[Value, Value] | None:
    """Return the tables that are applied to data at last, where two steps make parts of such that differ."""
    if not tables[0].makes(a) or not tables[1].makes(b):
        return None
    pending, visited = [*b.outputs], {value.number for value in b.outputs}
    while pending and len(visited) < NEAR:
        value = pending.pop(0)
        partner = pairs.value_in_a(value)
        users = pairs.b.users.get(value.number, ())
        is_applied = value.dtype in EPS and any(not tables[1].makes(user) for user in users)
        is_facing = partner is not None and tables[0].has(partner) and partner.numel == value.numel
        if is_applied and partner is not None and is_facing and not _same_table(partner, value):
            return partner, value
        made = [other for user in users if tables[1].makes(user) for other in user.outputs]
        pending += [other for other in made if other.number not in visited]
        visited |= {other.number for other in made}
    return None


def difference_of(pairs: Pairs, a: Value, b: Value) -> TableDifference | None:
    """Return what makes a table of b hold other numbers than one of a."""
    return _difference(pairs, *_first_apart(pairs, a, b))


def differing_table(pairs: Pairs, tables: tuple[Tables, Tables], a: Region, b: Region) -> tuple[Value, Value] | None:
    """Return a table that two regions use and that holds other numbers in b; ``None`` where each has its counterpart.

    Tables of one operation are counterparts, such as cosine and cosine; sizes do not count.
    """
    one, other = (_used(side, known) for side, known in zip((a, b), tables))
    left = [x for x in one if not any(_same_table(x, y) for y in other)]
    right = [y for y in other if not any(_same_table(x, y) for x in one)]
    for y in right:
        maker = pairs.b.maker(y)
        facing = [x for x in left if maker is not None and _name(pairs.a, x) == maker.name and x.dtype == y.dtype]
        if len(facing) == 1:
            return facing[0], y
    return None


def have_the_same_tables(tables: tuple[Tables, Tables], a: Region, b: Region) -> bool:
    """Does each table that one of two regions uses hold the same numbers as one of the other, if that has any?"""
    one, other = (_used(side, known) for side, known in zip((a, b), tables))
    return not one or not other or all(any(_same_table(x, y) for x in one) for y in other)


def _used(region: Region, tables: Tables) -> list[Value]:
    """Return the tables of floats that a region applies to data, each once."""
    made = {value.number for step in region.steps for value in step.outputs}
    found = {
        given.value.number: given.value
        for step in region.steps
        if not tables.makes(step)
        for given in step.inputs
        if given.value.dtype in EPS and given.value.number in made and tables.has(given.value)
    }
    return list(found.values())


def _same_table(a: Value, b: Value) -> bool:
    error = error_between(a.stats, b.stats)
    return error is None or error <= SAME_SUM


def _name(run: StepList, value: Value) -> str:
    maker = run.maker(value)
    return "" if maker is None else maker.name


def _first_apart(pairs: Pairs, a: Value, b: Value) -> tuple[Value, Value]:
    """Follow two tables upstream, by operands that differ, to the first ones that do."""
    for _ in range(NEAR):
        steps = _computed(pairs.a, a), _computed(pairs.b, b)
        if steps[0] is None or steps[1] is None:
            break
        names = {step.name for step in steps if step is not None}
        if len(names) > 1 and not names <= PRODUCTS:
            break
        one, other = ([given.value for given in step.inputs] for step in steps if step is not None)
        left = [x for x in one if not any(_same_table(x, y) for y in other)]
        right = [y for y in other if not any(_same_table(x, y) for x in one)]
        if len(left) != 1 or len(right) != 1:
            break
        a, b = left[0], right[0]
    return a, b


def _computed(run: StepList, value: Value) -> Step | None:
    """Return the step that computed a table, behind views and copies of it."""
    step = run.maker(value)
    while step is not None and step.name in COPYING and len({given.value.number for given in step.inputs}) == 1:
        step = run.maker(step.inputs[0].value)
    return step


def _difference(pairs: Pairs, a: Value, b: Value) -> TableDifference | None:
    of_a, of_b = _upstream(pairs.a, a), _upstream(pairs.b, b)
    computing = [step for step in of_b if not step.transparent and step.name not in COPYING]
    if not computing:
        return None
    known = [number for step in of_a for number in written_numbers(step)]
    new = [(step, number) for step in computing for number in written_numbers(step) if not _among(number, known)]
    partner = _computed(pairs.a, a)
    if len(new) == 1 and (known or a.name is None):
        step, number = new[0]
        gone = [x for x in known if not _among(x, [y for s in computing for y in written_numbers(s)])]
        told = f"{listed(f'{x:g}' for x in gone)} in a, {number:g} in b" if gone else f"{number:g} in b, not in a"
        return TableDifference(a, b, step, partner, told, True)
    step = next((step for step, _ in new), None) or computing[-1]
    powers = [step for step in computing if step.name in POWERS]
    if a.name is not None:  # nothing says how a made it
        step = (powers or computing)[-1]
        return TableDifference(a, b, step, partner, f"it makes other numbers than {a.name} of a has", False)
    return TableDifference(a, b, step, partner, "the table it makes has other numbers than that of a", False)


def _upstream(run: StepList, value: Value) -> list[Step]:
    """Return the steps that a table is made by, in execution order."""
    found: dict[int, Step] = {}
    pending = [value]
    while pending and len(found) < NEAR:
        step = run.makers.get(pending.pop().number)
        if step is not None and step.index not in found:
            found[step.index] = step
            pending += [given.value for given in step.inputs]
    return [found[index] for index in sorted(found)]


def written_numbers(step: Step) -> list[float]:
    """Return the numbers among a step's constants that may be more than a size, a place or a dimension."""
    if step.name in FACTORIES | SLICES or step.transparent:
        return []
    numbers = (number_in(text.rpartition("=")[2]) for text in step.constants)
    small = (0.0, 1.0, 2.0)
    return [number for number in numbers if number is not None and math.isfinite(number) and abs(number) not in small]


def _among(number: float, others: Iterable[float]) -> bool:
    """Is a number equal to another one, to its inverse, to its negative, or to its logarithm, as of powers by exp?"""
    return any(
        math.isclose(abs(number), abs(x), rel_tol=1e-4)
        or abs(number * x) == 1.0
        or _is_logarithm(number, x)
        or _is_logarithm(x, number)
        for x in others
    )


def _is_logarithm(number: float, x: float) -> bool:
    return math.isclose(abs(number), abs(math.log(abs(x))), rel_tol=1e-4)
