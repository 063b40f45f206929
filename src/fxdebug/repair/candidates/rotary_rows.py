"""Try whether rotary positions turn neighbours in one model and halves in the other, with rows that do not fit.

Both are in use: what is turned together lies side by side, or half a head apart. A checkpoint that goes from one to the
other has the rows of its queries and keys in another order in each head. Nothing in a run of b says so: its projections
return what a's do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.comparison.diagnosis.weights.product_slices import Columns, roles_of
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.values import Value
from fxdebug.operators.names import family
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit
from fxdebug.repair.trials.tried_repairs import first_repair, is_settled

MOST_LAYERS = 128
MOST_BEFORE_SOFTMAX = 6  # a scale, a mask, a bias, a cap

_ORDERS = {
    "neighbours": "b turns neighbours, a halves of a head: interleave the rows of each head",
    "halves": "b turns halves of a head, a neighbours: put the even rows of each head before the odd ones",
}


def told_of_rotary_rows(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names queries and keys whose rows do not fit the rotary positions of b.

    ``None`` where a finding is proven or names a setting already, and where no order of the rows makes b return what a
    returns. No run begins after ``until``.
    """
    first = found.first
    if first is None or first.kind == "constant" or is_settled(found.findings):
        return None  # which slices each takes is known already
    pairs, _ = runs.pairs()
    projections = list(_projections(pairs))
    tries = (
        (PlannedEdit("", tuple([each.part(turned) for each in projections])), partial(_row, first, projections, words))
        for turned, words in _ORDERS.items()
    )
    return first_repair(found, runs, tries if projections else (), until)


@dataclass(frozen=True)
class _Projection:
    """A product of b of which some columns are queries or keys, and how many of them are a head."""

    step: Step
    columns: Columns
    head: int

    def part(self, turned: str) -> Part:
        """Return the edit that puts the columns of each head into another order."""
        return Part(place_in(self.step), None, partial(_in_order, self.columns, self.head, turned))


def _projections(pairs: Pairs) -> Iterator[_Projection]:
    """Yield the products of b that make queries and keys, of all its attentions with one for each of these."""
    found: dict[tuple[int, Columns], _Projection] = {}
    for scores in _scores(pairs.b):
        head = scores.data[0].value.shape[-1]
        for step, columns in _queries_and_keys(pairs.b, scores) if len(found) < 2 * MOST_LAYERS else ():
            if head % 2 == 0 and len(columns) % head == 0:
                found[step.index, columns] = _Projection(step, columns, head)
    places = [each.step.index for each in found.values()]
    if len(set(places)) == len(places):  # parts of one product would be edited twice
        yield from found.values()


def _scores(run: StepList) -> Iterator[Step]:
    """Yield the operations that multiply queries and keys: a whole attention, or the product behind a softmax."""
    for step in run.steps:
        if step.name == "scaled_dot_product_attention":
            yield step
        elif step.name == "softmax" and step.data:
            value = step.data[0].value
            for _ in range(MOST_BEFORE_SOFTMAX):
                maker = run.maker(value)
                if maker is None or not maker.data or maker.weights:
                    break
                if family(maker.name) == "product":
                    if len(maker.data) == 2:
                        yield maker
                    break
                value = max((given.value for given in maker.data), key=lambda given: given.numel)


def _queries_and_keys(run: StepList, attention: Step) -> list[tuple[Step, Columns]]:
    """Return the products that make queries and keys, each with its columns; an empty list where these are not known.

    One for each, or one for both of which slices are taken.
    """
    sources = [_products_before(run, given.value) for given in attention.data[:2]]
    if not all(len(each) == 1 for each in sources):
        return []
    products = [each[0] for each in sources]
    if products[0] is products[1]:
        return roles_of(run, products)[:2]
    sides = zip(products, attention.data)
    if any(step.outputs[0].numel != given.value.numel for step, given in sides):
        return []
    return [(step, tuple(range(step.outputs[0].shape[-1]))) for step in products]


def _products_before(run: StepList, value: Value) -> list[Step]:
    """Return the products with weights that a value is made of, directly or behind other operations."""
    found: dict[int, Step] = {}
    pending = [value]
    visited: set[int] = set()
    while pending:
        step = run.maker(pending.pop())
        if step is None or step.index in visited:
            continue
        visited.add(step.index)
        if step.weights and family(step.name) == "product":
            found[step.index] = step
        else:
            pending += [given.value for given in step.data]
    return [found[index] for index in sorted(found)]


def _in_order(
    columns: Columns, head: int, turned: str, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]
) -> Any:
    """Return a product with some of its columns in another order in each head."""
    if not isinstance(ours.result, Tensor) or ours.result.shape[-1] <= max(columns):
        raise NoEdit
    made = ours.result.clone()
    heads = made[..., list(columns)].unflatten(-1, (-1, head))
    halves = (2, head // 2) if turned == "neighbours" else (head // 2, 2)
    made[..., list(columns)] = heads.unflatten(-1, halves).transpose(-1, -2).flatten(-3)
    return made


def _row(shown: Row, projections: Sequence[_Projection], words: str) -> Row:
    """Return the first finding, which lies where the positions are turned, with what was found out about it."""
    names = [given.value.name for each in projections[:2] for given in each.step.weights[:1]]
    several = dict.fromkeys(name for name in names if name)
    more = len(projections) - len(names)
    beside = f", and of {more} more" if more else ""
    told = f"rotary positions: {words} of {' and '.join(several)}{beside}"
    proof = "what they make in that order: with this edit b returns what a returns"
    return replace(shown, because=told).proven_by(proof)
