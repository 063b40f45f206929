"""Try weights that lie another way than b's code takes them: transposed in two dimensions of one size, or flipped.

A square matrix fits either way round, and a kernel too. Where b keeps weights in another layout than a, or computes
with other operations, no statistics say which way is right: one that makes b return what a returns is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from fxdebug.comparison.diagnosis.cause import listed
from fxdebug.comparison.diagnosis.region import region_of
from fxdebug.comparison.diagnosis.weights.weight_slices import numberless
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step
from fxdebug.data.values import shape_text
from fxdebug.operators.names import family
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Ran, is_inplace
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of
from fxdebug.repair.trials.tried_repairs import first_repair, is_settled, proven_at

MOST_WEIGHTS = 64
MOST_FLATTENED = 4  # products, of which those behind a flattening are tried
MOST_DIMS = 3  # that were flattened: of four there are 23 other orders
_FLATTENING = frozenset(["flatten", "view", "reshape"])
MOST_RUNS = 24
LARGEST_KERNEL = 32  # of a dimension that may be flipped: of a kernel, and no channels

Turn: TypeAlias = Callable[[Tensor], Tensor]
Products: TypeAlias = list[tuple[Step, int]]
"""Products, each with which of its inputs is the weight."""


def told_of_turned_weights(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names weights of b with which, turned, it returns what a returns.

    ``None`` where a finding is proven already, and where no weights turned do so. No run begins after ``until``.
    """
    if not found.findings or is_settled(found.findings):
        return None
    pairs, _ = runs.pairs()
    first = found.findings[0]
    tries = itertools.islice(_tries(pairs, first), MOST_RUNS)
    return first_repair(found, runs, ((each.edit, partial(each.row, first, pairs)) for each in tries), until)


@dataclass(frozen=True)
class _Turned:
    """Products of b with their weights turned in one way."""

    places: tuple[tuple[Step, int], ...]  # a product, and which of its inputs is the weight
    words: str
    turn: Turn

    @property
    def edit(self) -> PlannedEdit:
        """The edit of b."""
        parts = [Part(place_in(step), None, partial(_with_weight, slot, self.turn)) for step, slot in self.places]
        return PlannedEdit("", tuple(parts))

    def row(self, shown: Row, pairs: Pairs) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        step = self.places[0][0]
        partner = pairs.step_in_a(step)
        names = dict.fromkeys(each.inputs[slot].value.name for each, slot in self.places)
        lies = "lies" if len(names) == 1 else "lie"
        because = f"{listed(names)} {lies} another way than its code takes it: {self.words} it fits"
        known = partner if partner is not None and partner.outputs else None
        return proven_at(shown, step, "weights", because, self.words, known)


def _tries(pairs: Pairs, first: Row) -> Iterator[_Turned]:
    """Yield what may be turned: the weights of one part in all layers, then all of that form, then one alone."""
    behind, after = _products(pairs, first)
    for step, slot in [*behind, *after][:MOST_FLATTENED]:
        for words, turn in _orders_of_columns(pairs, step, slot):
            yield _Turned(((step, slot),), words, turn)
    known: set[tuple[str, tuple[tuple[int, int], ...]]] = set()
    # one behind it, too: in a cell, the state has a matrix beside that of what is given
    for step, slot in [*behind, *after][: len(behind) + (1 if behind else 2)]:
        for words, turn, fits in _turns(step.inputs[slot].value.shape):
            alike = [(s, at) for s, at in (*behind, *after) if fits(s.inputs[at].value.shape)]
            same_part = [(s, at) for s, at in alike if _part(s, at) == _part(step, slot)]
            for chosen in (same_part, alike, [(step, slot)]):
                key = words, tuple([(s.index, at) for s, at in chosen])
                if key not in known:
                    known.add(key)
                    yield _Turned(tuple(chosen), words, turn)


def _part(step: Step, slot: int) -> str:
    return numberless(f"{step.inputs[slot].value.name}.")


def _products(pairs: Pairs, first: Row) -> tuple[Products, Products]:
    """Return the products of b with a weight that the first finding depends on since b equals a, and those after it."""
    value = None if first.b is None else first.b.value
    region = () if value is None else region_of(pairs.b, value, pairs.is_firm, through=True).steps
    inside = {step.index for step in region}
    behind, after = Products(), Products()
    for step in pairs.b.steps:
        at = [slot for slot, given in enumerate(step.inputs) if given.is_weight and len(given.value.shape) > 1]
        if family(step.name) == "product" and len(at) == 1 and step.outputs and not step.unrecorded:
            if step.index in inside:
                behind.append((step, at[0]))
            elif step.index >= first.position and len(after) < MOST_WEIGHTS:
                after.append((step, at[0]))
    return behind, after


def _turns(shape: Sequence[int]) -> Iterator[tuple[str, Turn, Callable[[Sequence[int]], bool]]]:
    """Yield ways to turn a weight in words, with the function, and which shapes allow it, too."""
    dims = len(shape)
    for one, other in itertools.combinations(range(dims), 2):
        if shape[one] == shape[other]:
            words = "transposed" if dims == 2 else f"with its dimensions {one} and {other} transposed"

            def fits(other_shape: Sequence[int], i: int = one, j: int = other) -> bool:
                return len(other_shape) == dims and other_shape[i] == other_shape[j]

            yield words, partial(_transposed, one, other), fits
    if dims == 2 and shape[0] != shape[1] and min(shape) > 1:
        words = f"read as {shape_text(shape[::-1])} and transposed"
        yield words, _read_and_transposed, lambda other_shape: tuple(other_shape) == tuple(shape)
    for spatial in (range(2, dims), range(dims - 2)) if dims > 2 else ():  # as torch keeps kernels, or channels last
        if all(shape[at] <= LARGEST_KERNEL for at in spatial):
            for flipped in dict.fromkeys([tuple(spatial), *((at,) for at in spatial)]):
                words = f"flipped along dimension{'s' * (len(flipped) > 1)} {' and '.join(map(str, flipped))}"
                yield words, partial(_flipped, flipped), lambda other_shape: len(other_shape) == dims


def _orders_of_columns(pairs: Pairs, step: Step, slot: int) -> Iterator[tuple[str, Turn]]:
    """Yield other orders of a weight's columns, where what they are multiplied with was flattened just before."""
    maker = pairs.b.makers.get(step.data[0].value.number) if step.data else None
    if maker is None or maker.name not in _FLATTENING or not maker.data:
        return
    width, before = step.data[0].value.shape[-1], maker.data[0].value.shape
    start = next((at for at in range(1, len(before)) if math.prod(before[at:]) == width), len(before))
    parts = before[start:]
    along = [at for at, size in enumerate(step.inputs[slot].value.shape) if size == width]
    if not 1 < len(parts) <= MOST_DIMS or not along:
        return
    for order in itertools.permutations(range(len(parts))):
        sizes = [parts[at] for at in order]
        if list(order) != sorted(order) and math.prod(sizes) == width:
            told = f"with its columns, which are in the order {shape_text(sizes)}, put into that of {shape_text(parts)}"
            yield told, partial(_columns, along[-1], sizes, order)


def _columns(along: int, sizes: Sequence[int], order: Sequence[int], weight: Tensor) -> Tensor:
    """Return a weight with its columns, which lie in another order of the dimensions that were flattened, as b has."""
    apart = weight.unflatten(along, tuple(sizes))
    places = [
        *range(along),
        *(along + order.index(at) for at in range(len(order))),
        *range(along + len(order), apart.ndim),
    ]
    return apart.permute(places).flatten(along, along + len(order) - 1)


def _read_and_transposed(weight: Tensor) -> Tensor:
    """Return a matrix that was put into its shape where it had to be transposed."""
    return weight.reshape(tuple(weight.shape[::-1])).mT


def _transposed(one: int, other: int, weight: Tensor) -> Tensor:
    return weight.transpose(one, other)


def _flipped(dims: Sequence[int], weight: Tensor) -> Tensor:
    return weight.flip(tuple(dims))


def _with_weight(slot: int, turn: Turn, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Compute an operation with its weight turned."""
    tensors = tensors_of(ours)
    if is_inplace(ours) or slot >= len(tensors):
        raise NoEdit
    made = computed_with(ours, {slot: turn(tensors[slot].detach())})
    if not isinstance(made, Tensor) or made.shape != ours.result.shape:
        raise NoEdit
    return made
