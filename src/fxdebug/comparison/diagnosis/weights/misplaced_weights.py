"""Name a weight whose slices are not where the code takes them: exchanged, interleaved, transposed, missing, doubled.

The result of such a product looks right as a whole, so the fault shows later, where a slice is used. A port may well
keep rows in another order than a does; so the measure is the same weight in layers before, whose results are right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from fxdebug.comparison.diagnosis.cause import Cause, listed, values_differ
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.region import is_single_operation
from fxdebug.comparison.diagnosis.weights.changed_weight import changed_weight, is_same
from fxdebug.comparison.diagnosis.weights.product_slices import columns_of
from fxdebug.comparison.diagnosis.weights.weight_slices import (
    Arrangement,
    Weight,
    Weights,
    arrangement,
    general,
    is_in_order,
    numberless,
    runs_of,
    same_order,
    same_owners,
)
from fxdebug.comparison.pairing.by_path import renamed
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import FAR, NEARLY_ALL, VIEWS
from fxdebug.data.values import Value
from fxdebug.operators.names import NORMS, SLICES, family, op_of_module

WEIGHTS_OF_A_CELL = 4  # of more, as of several layers and directions, it is not known which ones face those of b


# The beginnings of names of operations whose weights have a row for each feature that they make, as ``linear`` has.
_AS_LINEAR = ("linear", "conv", "multi_head_attention", "lstm", "gru", "rnn")


@dataclass(frozen=True)
class Product:
    """A product with weights, or a call whose operations were not recorded, and its weights."""

    step: Step
    weights: tuple[Weight, ...]
    sliced: frozenset[str] = frozenset()  # the names of weights of which it uses a slice

    @property
    def matrix(self) -> Weight | None:
        """The weight that a value is multiplied with; of several, the one that makes query, key and value."""
        matrices = [weight for weight in self.weights if not weight.is_vector]
        fused = [weight for weight in matrices if weight.name.endswith("in_proj_weight")]
        return next(iter(fused or matrices), None)

    def rows_of(self, weight: Weight) -> int:
        """Return the dimension of a weight whose slices make the columns of the result."""
        shape = weight.parameter.shape
        if self.step.unrecorded or weight.is_vector or self.step.name.startswith(_AS_LINEAR):
            return 0
        width = self.step.outputs[0].shape[-1:] if self.step.outputs else ()
        return len(shape) - 1 if len(shape) == 2 and shape[-1:] == width else 0


@dataclass
class MisplacedWeights:
    """Find the weight whose slices explain a cause. ``reported``: names of weights that are a cause already."""

    judge: Judge
    reported: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._a, self._b = Weights(self.judge.pairs.a.trace), Weights(self.judge.pairs.b.trace)

    def explain(self, cause: Cause, result: StepResult | None = None) -> Cause | None:
        """Return the weight behind a cause, else the cause itself; ``None`` where the weight was named before."""
        named_alike = cause.kind in ("constant", "weights") and cause.matched_by in ("path", "mapping")
        if named_alike or cause.kind in ("dtype", "input", "raised", "nonfinite", "random"):
            return cause
        pairs = self.judge.pairs
        shown = (None, None) if result is None else (result.partner, result.step)
        made_a = None if cause.value_a is None else pairs.a.makers.get(cause.value_a.number)
        made_b = None if cause.value_b is None else pairs.b.makers.get(cause.value_b.number)
        of_a = list(self._products(pairs.a, self._a, (shown[0], cause.a, made_a)))
        # a value in another place comes of a product that is equal to one of a's, but of another one
        of_b = list(self._products(pairs.b, self._b, (shown[1], cause.b, made_b), equal=cause.kind == "wiring"))
        pool = list({weight.name: weight for product in of_a for weight in product.weights}.values())
        for product in of_b if pool else ():
            found = self._misplaced(product, pool)
            if found is not None:
                return self._weight_cause(cause, product, *found)
        return self._taken_otherwise(cause, of_b, pool)

    def _taken_otherwise(self, cause: Cause, products: Iterable[Product], pool: list[Weight]) -> Cause:
        """Return the step that cuts the result of a product, where a has all rows of its weight: it is not extra."""
        for product in [each for each in products if each.step is cause.b] if cause.kind == "extra" else ():
            matrix, cut = product.matrix, _first_cut(self.judge.pairs.b, product.step)
            rows = None if matrix is None else arrangement(matrix, pool, product.rows_of(matrix))
            if matrix is None or rows is None or cut is None or None in rows or is_in_order(rows):
                continue
            names = listed(dict.fromkeys(row.weight for row in rows if row is not None))
            because = f"it takes other parts than a: the rows of {matrix.name} are those of {names} of a"
            return replace(cause, kind="wiring", call=cut.call, op=cut.op, because=because, b=cut)
        return cause

    def _weight_cause(self, cause: Cause, product: Product, weight: Weight, because: str) -> Cause | None:
        if weight.name in self.reported:
            return None
        if self._is_that_of_a(weight):
            return cause
        self.reported.add(weight.name)
        step = product.step
        rows = arrangement(weight, [other for name in self._a.names if (other := self._a.find(name)) is not None])
        names = {row.weight for row in rows or () if row is not None}
        if len(names) == 1:
            because = changed_weight(names.pop(), weight.name, self._a, self._b) or because
        op = self._use_of(weight) if step.unrecorded else step.op
        return replace(cause, kind="weights", call=step.call, op=op, because=because, b=step, absorbable=False)

    def _is_that_of_a(self, weight: Weight) -> bool:
        """Has a the same weight under the same name? Then the code around it is to blame."""
        mine = self._a.find(renamed(self.judge.pairs.b, weight.name))
        return mine is not None and mine.parameter.shape == weight.parameter.shape and is_same(mine, weight)

    def _use_of(self, weight: Weight) -> str:
        """Return the operation that uses a weight of a call without a graph: that of its module, or a product."""
        modules = self.judge.pairs.b.trace.modules
        type = modules.get(weight.name.rpartition(".")[0], "")
        op = op_of_module(type)
        return "linear" if op == type else op

    # Products before a step ----------------------------------------------------------------------

    def _products(
        self, run: StepList, weights: Weights, starts: Iterable[Step | None], *, equal: bool = False
    ) -> Iterator[Product]:
        """Yield the products with weights that some steps depend on, back to equal inputs, in execution order.

        ``equal``: also those of b with results that are equal to their partners in a.
        """
        first = [step for step in starts if step is not None]
        pending = [*first]
        visited = {step.index for step in pending}
        found: dict[int, Product] = {}
        while pending and len(visited) < FAR:
            step = pending.pop(0)
            known = self._weights_of(weights, step)
            healthy = run is self.judge.pairs.b and step not in first and self._is_healthy(run, step)
            if known and healthy and not equal:
                continue
            if known:
                found[step.index] = Product(step, tuple(known), sliced_by(run, step))
                for given in step.data:
                    beside = [s for s in run.users.get(run.root(given.value).number, ()) if s.index not in found]
                    for other in beside:
                        if other.call is not step.call and other.call.parent is not step.call.parent:
                            continue  # the same memory is given to each layer of a decoder
                        others = [] if other.unrecorded else self._weights_of(weights, other)
                        if others:
                            found[other.index] = Product(other, tuple(others), sliced_by(run, other))
                data = [given for given in step.data if weight_behind(run, given.value) is None]
                if all(self._is_clean(run, given.value.number) for given in data):
                    continue
            for given in step.data:
                maker = run.makers.get(given.value.number)
                if maker is not None and maker.index not in visited:
                    visited.add(maker.index)
                    pending.append(maker)
        yield from [found[index] for index in sorted(found)]

    def _weights_of(self, weights: Weights, step: Step) -> list[Weight]:
        if step.unrecorded:
            return [] if step.call.parent is None or step.call.children else weights.within(step.call.path)
        cell = not is_single_operation(step) and len(step.weights) <= WEIGHTS_OF_A_CELL
        if family(step.name) != "product" and step.name not in NORMS and not cell:
            return []
        run = self.judge.pairs.a if weights is self._a else self.judge.pairs.b
        names = [weight_behind(run, given.value) for given in step.inputs]
        found = [weights.find(name) for name in dict.fromkeys(names) if name is not None]
        return [weight for weight in found if weight is not None]

    def _is_healthy(self, run: StepList, step: Step) -> bool:
        """Is the result of a step, of which no pieces are taken, equal to that of its counterpart?"""
        clean = bool(step.outputs) and all(self._is_clean(run, value.number) for value in step.outputs)
        return clean and not _is_cut(run, step)

    def _is_clean(self, run: StepList, number: int) -> bool:
        """Has a value a partner that it is equal to?"""
        pairs, value = self.judge.pairs, run.values[number]
        a, b = (pairs.value_in_a(value), value) if run is pairs.b else (value, pairs.value_in_b(value))
        return a is not None and b is not None and not values_differ(self.judge, a, b)

    # Compared with other layers ------------------------------------------------------------------

    def _misplaced(self, product: Product, pool: list[Weight]) -> tuple[Weight, str] | None:
        """Return the weight of a product with its slices in other places than in other layers, and how so."""
        for weight in product.weights:
            for dimension in (0,) if weight.is_vector else (0, 1):
                mine = arrangement(weight, pool, dimension)
                before, after = self._in_layers(weight, pool, dimension)
                usual = before or after
                what = "columns" if dimension else "rows"
                if weight.name in product.sliced and mine is not None:  # the rest of it is used elsewhere
                    usual = [_where_known(mine, other, weight) for other in usual]
                if mine is not None and usual and not any(same_order(mine, other) for other in usual):
                    return weight, _told(weight, mine, usual[-1], what)
                if mine is None and usual and weight.is_zero:
                    names = dict.fromkeys(numberless(row.weight) for row in usual[-1] if row is not None)
                    facing = [other for other in pool if numberless(other.name) in names]
                    if facing and not any(other.is_zero for other in facing):
                        return weight, f"{weight.name} is zero, {listed(other.name for other in facing)} of a is not"
        if any(self._in_layers(weight, pool)[0] for weight in product.weights):
            return None
        for weight in product.weights:
            lost = _lost(weight, arrangement(weight, pool), pool)
            if lost:
                return weight, lost
        return _unlike_bias(product, pool)

    def _in_layers(self, weight: Weight, pool: list[Weight], dimension: int = 0) -> tuple[list[Arrangement], ...]:
        """Return how the same weight is arranged in layers before and after this one."""
        wanted = {numberless(other.name) for other in pool}
        others = [other for name in self._a.names if numberless(name) in wanted if (other := self._a.find(name))]
        layers: tuple[list[Arrangement], ...] = ([], [])
        names = self._b.names
        for name in self._b.alike(weight.name):
            layer = self._b.find(name)
            rows = None if layer is None or name in self.reported else arrangement(layer, others, dimension)
            if rows is not None:
                layers[names[name] > names[weight.name]].append(rows)
        return layers

    # Compared by their roles ---------------------------------------------------------------------


def weight_behind(run: StepList, value: Value, *, computed: bool = False) -> str | None:
    """Return the name of the weight that a value is, or is a slice or a view of; ``computed``: or any function of."""
    for _ in range(VIEWS):
        name = run.root(value).name  # in a call that is compared by itself, that of its own module
        if name is not None:
            return name
        maker = run.makers.get(value.number)
        if maker is None or len(maker.inputs) != 1 or not (computed or maker.transparent or maker.name in SLICES):
            return None
        value = maker.inputs[0].value
    return None


def sliced_by(run: StepList, step: Step) -> frozenset[str]:
    """Return the names of the weights of which a step uses a slice."""
    names = [weight_behind(run, given.value) for given in step.inputs if given.value.name is None]
    return frozenset(name for name in names if name is not None)


def _where_known(mine: Arrangement, usual: Arrangement, weight: Weight) -> Arrangement:
    """Return an arrangement as another one where that one has no row: but for zeros, nothing is known of it there."""
    zeros = set(weight.zeros())
    return tuple([y if x is not None or place in zeros else None for place, (x, y) in enumerate(zip(mine, usual))])


def _is_cut(run: StepList, step: Step) -> bool:
    """Is a step's result taken apart by columns?"""
    cut = _first_cut(run, step)
    if cut is None:
        return False
    known = [columns_of(step.outputs[0], piece) for piece in cut.results if piece.storage == step.outputs[0].storage]
    if not known:  # pieces of a copy: several of them are parts of it
        return len(cut.results) > 1
    return any(columns is not None and len(columns) < step.outputs[0].shape[-1] for columns in known)


def _first_cut(run: StepList, step: Step) -> Step | None:
    """Return the first step that takes a piece out of a step's result."""
    pending = list(step.outputs)
    for _ in range(8):
        found = {user.index: user for value in pending for user in run.users.get(run.root(value).number, ())}
        users = [found[index] for index in sorted(found)]  # once each: a recurrence uses its state many times a step
        cut = next((user for user in users if user.name in SLICES), None)
        if cut is not None or not users:
            return cut
        pending = list({value.number: value for user in users for value in user.outputs}.values())
    return None


def _lost(weight: Weight, rows: Arrangement | None, pool: list[Weight]) -> str:
    """Say which rows of a weight are zero, or there twice, where those of a are neither; empty if none is."""
    if rows is None:
        return ""
    sources = [other for other in pool if other.is_vector == weight.is_vector]
    zeros = weight.zeros()
    if zeros and not any(other.zeros() for other in sources):
        return f"{_span(zeros)} of {weight.name} are zero, in a they are not"
    known = [row for row in rows if row is not None]
    twice = [place for place, row in enumerate(rows) if row is not None and row in rows[:place]]
    used = {row.weight for row in known}
    unused = [other.name for other in sources if other.name not in used and other.owner in _owners(pool, used)]
    if twice and len(twice) > (1 - NEARLY_ALL) * len(rows):
        first = rows[twice[0]]
        assert first is not None
        return f"{_span(twice)} of {weight.name} are those of {first.weight} once more{_instead(unused)}"
    return ""


def _owners(pool: list[Weight], names: set[str]) -> set[str]:
    """Return the owners of weights beside those of some names: with the same name but for the last module."""
    around = {name.rsplit(".", 2)[0] for name in names}
    return {other.owner for other in pool if other.name.rsplit(".", 2)[0] in around}


def _instead(unused: list[str]) -> str:
    return f", and {unused[0]} is nowhere" if len(unused) == 1 else ""


def _unlike_bias(product: Product, pool: list[Weight]) -> tuple[Weight, str] | None:
    """Return the bias or the matrix of a product whose rows come from other places than those of the other."""
    vectors = [weight for weight in product.weights if weight.is_vector]
    for bias in vectors:
        matrix = next((x for x in product.weights if not x.is_vector and x.owner == bias.owner), None)
        if matrix is None and len(product.weights) == 2:
            matrix = product.matrix
        rows = None if matrix is None else arrangement(matrix, pool, product.rows_of(matrix))
        biases = arrangement(bias, pool)
        if bias.is_zero and rows is not None:
            owners = {row.owner for row in rows if row is not None}
            facing = [other for other in pool if other.is_vector and other.owner in owners]
            if facing and not any(other.is_zero for other in facing):
                return bias, f"{bias.name} is zero, {listed(other.name for other in facing)} of a is not"
        if matrix is None or rows is None or biases is None or len(rows) != len(biases) or same_owners(rows, biases):
            continue  # a matrix with another number of rows has no order for those of the bias
        wrong, other = (bias, matrix) if is_regular(rows) or not is_regular(biases) else (matrix, bias)
        told = runs_of(biases if wrong is bias else rows)
        names = listed(dict.fromkeys(run.weight for run in told if run.weight is not None))
        return wrong, f"the rows of {wrong.name} are those of {names} of a, in another order than in {other.name}"
    return None


def is_regular(rows: Arrangement) -> bool:
    """Do the weights of a come one after the other, each in its own order?"""
    runs = [run for run in runs_of(rows) if run.weight is not None]
    return is_in_order(rows) or all(run.first == 0 for run in runs)


def _told(weight: Weight, mine: Arrangement, usual: Arrangement, what: str) -> str:
    """Say where the slices of a weight are not what they are in another layer."""
    place = next(i for i, (x, y) in enumerate(zip(mine, usual)) if general(x) != general(y))
    run = next(run for run in runs_of(mine) if run.start <= place < run.stop)
    wanted, given = usual[place], mine[place]
    where = f"{what} {place}:{run.stop} of {weight.name}"
    if given is None:
        text = f"{where} are {'zero' if what == 'rows' and place in weight.zeros() else 'not in a'}"
    else:
        text = f"{where} are {given.place}:{run.last + 1} of {given.weight} of a"
        if given.dimension != (what == "columns"):
            text += ", transposed"
    if wanted is None:
        return text
    other = numberless(wanted.weight)
    same = given is not None and numberless(given.weight) == other
    return f"{text}; in other layers they are {'in another order' if same else f'those of {other}'}"


def _span(places: Iterable[int]) -> str:
    """Return rows as text: ``rows 0:64``.

    >>> _span([2, 3, 4]), _span([0, 2, 4])
    ('rows 2:5', '3 rows from 0')
    """
    known = sorted(places)
    together = known[-1] - known[0] == len(known) - 1
    return f"rows {known[0]}:{known[-1] + 1}" if together else f"{len(known)} rows from {known[0]}"
