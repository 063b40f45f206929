"""Weights of b that are those of a with factors along a dimension, or those of another module of a.

The weights themselves say so, whatever was paired; that they are the cause, a run of b with the right ones shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Place, Ran, is_inplace
from fxdebug.repair.rerun.tensors_at_hand import weights_of
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of
from fxdebug.repair.trials.tried_repairs import first_repair, is_settled, proven_at, with_told

LEAST = 8  # elements more than there are factors
MOST_DIMS = 4
MOST_PLACES = 64
MOST_ELEMENTS = 1 << 22  # of a weight
CLOSE = 1e-4  # how far factors of one slice may be apart, relatively
NOTHING = 1e-6  # of the largest element: what is no more is zero

New: TypeAlias = dict[int, Tensor]
"""The tensors that an operation is to be given, by their number among those that it is given."""


def told_of_weights_of_a(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names weights of b that are not those of a, and with which of a's it returns the same.

    Where no weights of a repair b, a finding that names such a weight says how it differs. ``None`` where a finding is
    proven already, and where there are no such weights. No run begins after ``until``.
    """
    first = found.first
    if first is None or is_settled(found.findings) or not runs.ran("a") or not runs.ran("b"):
        return None
    pairs, _ = runs.pairs()
    scaled = list(_scaled_weights(pairs, runs))
    # such as which two are exchanged, or which module is called in the place of which
    is_told = " is called in a, " in first.because
    is_told = is_told or (first.kind == "weights" and " differs from " not in first.because)
    of_modules = () if is_told else (*_of_partners(pairs, runs), *_used_again(pairs, runs))
    edits = [*of_modules, *(edit for each in scaled for edit in each.edits(pairs))]
    tries = ((each.edit, partial(each.row, first)) for each in edits)
    repaired = first_repair(found, runs, tries, until)
    if repaired is not None:
        return repaired
    named = {each.name: each.told for each in scaled}
    rows = [
        replace(row, because=named[name]) if row.kind == "weights" and (name := _named(row, named)) else row
        for row in found.findings
    ]
    return None if all(new is row for new, row in zip(rows, found.findings)) else with_told(found, rows)


def _named(row: Row, names: Mapping[str, str]) -> str:
    """Return the weight of which a finding says no more than that it differs; empty where it says more, or of none."""
    return next((name for name in names if row.because.startswith((f"{name} differs from", f"{name} holds"))), "")


@dataclass(frozen=True)
class _OtherWeights:
    """Operations of b with other weights, and what is told where these repair it."""

    places: tuple[tuple[Step, New], ...]
    told: str
    words: str

    @property
    def edit(self) -> PlannedEdit:
        """The edit of b."""
        parts = tuple([Part(place_in(step), None, partial(_given, new)) for step, new in self.places])
        return PlannedEdit(self.words, parts)

    def row(self, shown: Row) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        return proven_at(shown, self.places[0][0], "weights", self.told, self.words)


def _given(new: New, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    if is_inplace(ours):
        raise NoEdit
    return computed_with(ours, {at: tensor.to(tensors_of(ours)[at].dtype) for at, tensor in new.items()})


# Weights of another module -----------------------------------------------------------------------


def _of_partners(pairs: Pairs, runs: EditedRuns) -> Iterator[_OtherWeights]:
    """Yield the edit that gives all operations of b the weights of their counterparts, where these are others."""
    ran: tuple[Mapping[Place, Ran], ...] = runs.ran("a"), runs.ran("b")
    places: list[tuple[Step, New]] = []
    told: list[tuple[str, str, Tensor]] = []
    for step in pairs.b.steps:
        partner = pairs.step_in_a(step) if step.weights else None
        sides = None if partner is None else (ran[0].get(place_in(partner)), ran[1].get(place_in(step)))
        if partner is None or sides is None or sides[0] is None or sides[1] is None or partner.name != step.name:
            continue
        tensors, new = (tensors_of(sides[0]), tensors_of(sides[1])), New()
        for at, (one, other) in enumerate(zip(partner.inputs, step.inputs)):
            if not (one.is_weight and other.is_weight) or at >= min(map(len, tensors)):
                continue
            a, b = tensors[0][at].detach(), tensors[1][at].detach()
            if a.shape == b.shape and a.is_floating_point() and not torch.allclose(a, b.to(a.dtype), rtol=CLOSE):
                new[at] = a
                told.append((str(one.value.name), str(other.value.name), b))
        if new:
            places.append((step, new))
    if not 0 < len(places) <= MOST_PLACES:
        return
    wanted, name, held = told[0]
    others = [one for one, tensor in _tensors_of(runs.a.model) if _is_same(tensor, held)]
    more = f", and {len(told) - 1} more weights are others" if len(told) > 1 else ""
    if others:  # without the numbers of any, they are just not those of a, which is told already
        told_of = f"{name} holds the weights of {others[0]} of a, not of {wanted}{more}"
        yield _OtherWeights(tuple(places), told_of, f"{name} with {wanted} of a{' and so on' if more else ''}")


def _used_again(pairs: Pairs, runs: EditedRuns) -> Iterator[_OtherWeights]:
    """Yield the edits that give operations with weights that b uses several times those of a that b has nowhere."""
    ran, of_b = runs.ran("b"), dict(_tensors_of(runs.b.model))
    known = dict(_tensors_of(runs.a.model))
    lost = {name for name, each in known.items() if not any(_is_same(each, own) for own in of_b.values())}
    uses: dict[str, list[Step]] = {}
    for step in pairs.b.steps:
        if step.weights and place_in(step) in ran:
            uses.setdefault(str(step.weights[0].value.name), []).append(step)
    several = [steps for steps in uses.values() if len(steps) > 1 and steps[0].call is not steps[1].call]
    shapes = [(steps[0].name, _shapes(steps[0])) for steps in several]
    wanted = [
        step
        for step in pairs.a.steps
        if any(given.value.name in lost for given in step.weights) and (step.name, _shapes(step)) in shapes
    ]
    for number in range(max(map(len, several), default=0) if 0 < len(wanted) <= MOST_PLACES else 0):
        places: list[tuple[Step, New]] = []
        left = list(wanted)
        for step in sorted((steps[number] for steps in several if len(steps) > number), key=lambda step: step.index):
            if left and _shapes(step) == _shapes(left[0]) and step.name == left[0].name:
                own = left.pop(0)
                slots = [at for at, given in enumerate(step.inputs) if given.is_weight]
                places.append((step, {at: known[str(x.value.name)] for at, x in zip(slots, own.weights)}))
        if left or not places:
            continue
        first, name = places[0][0], str(places[0][0].weights[0].value.name)
        own_name = str(wanted[0].weights[0].value.name)
        held = next((one for one, each in known.items() if name in of_b and _is_same(each, of_b[name])), "")
        holds = f" and holds {held} of a" if held else ""
        told = (
            f"{name} is used {len(uses[name])} times{holds}: a has {own_name} in one of these places, which b has not"
        )
        yield _OtherWeights(tuple(places), told, f"{first.op} with {own_name} of a, and {len(places) - 1} more")


def _shapes(step: Step) -> list[tuple[int, ...]]:
    return [tuple(given.value.shape) for given in step.weights]


def _is_same(tensor: Tensor, held: Tensor) -> bool:
    return tensor.shape == held.shape and torch.allclose(tensor.to(held.dtype), held, rtol=CLOSE)


def _tensors_of(model: nn.Module | None) -> list[tuple[str, Tensor]]:
    named = weights_of(model).items()
    return [(name, each) for name, each in named if each.is_floating_point() and each.numel() <= MOST_ELEMENTS]


# Factors along a dimension -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Scaled:
    """A weight of b that is one of a, its dimensions in some order, with factors along one of these."""

    name: str  # of b
    of_a: str
    own: Tensor
    laid_out: Tensor  # that of a, with its dimensions as b has them
    along: int
    factors: Tensor
    is_turned: bool

    @property
    def told(self) -> str:
        """The difference as a sentence."""
        low, high = self.factors.min().item(), self.factors.max().item()
        what = f"each of its {_slices(self.own, self.laid_out, self.along)} times another factor"
        turned = " transposed" if self.is_turned else ""
        return f"{self.name} is {self.of_a} of a{turned}, with {what}, from {low:.4g} to {high:.4g}"

    def edits(self, pairs: Pairs) -> Iterator[_OtherWeights]:
        """Yield the edits that give b that of a as it is, or with the factors along another dimension."""
        uses = [
            (step, at)
            for step in pairs.b.steps
            for at, given in enumerate(step.inputs)
            if given.is_weight and given.value.name == self.name and not step.unrecorded
        ]
        if not 0 < len(uses) <= MOST_PLACES:
            return
        ways = [(self.laid_out, self.told, f"{self.name} with the numbers of {self.of_a} of a")]
        for dim in range(self.laid_out.ndim):
            if dim != self.along and self.laid_out.shape[dim] == len(self.factors):
                of_it = f"the factors of its {_slices(self.own, self.laid_out, self.along)}"
                words = f"{of_it} along dimension {dim} of {self.of_a}"
                told = f"{self.told}, where a's values need these along another dimension"
                ways.append((_times(self.laid_out, self.factors, dim), told, f"{self.name} with {words}"))
        for new, told, words in ways:
            places = tuple([(step, {at: new.reshape(self.own.shape)}) for step, at in uses])
            yield _OtherWeights(places, told, words)


def _slices(own: Tensor, laid_out: Tensor, along: int) -> str:
    if own.ndim == 2 and along in (0, laid_out.ndim - 1) and own.shape[min(along, 1)] == laid_out.shape[along]:
        return ("rows", "columns")[min(along, 1)]
    return f"slices along dimension {along}"


def _times(tensor: Tensor, factors: Tensor, along: int) -> Tensor:
    shape = [1] * tensor.ndim
    shape[along] = -1
    return tensor * factors.reshape(shape)


def _scaled_weights(pairs: Pairs, runs: EditedRuns) -> Iterator[_Scaled]:
    """Yield the weights of b that are those of a with factors."""
    used = {str(given.value.name) for step in pairs.b.steps for given in step.weights}
    of_a = _tensors_of(runs.a.model)
    for name, own in _tensors_of(runs.b.model):
        if name not in used or own.ndim < 2 or own.numel() < LEAST:
            continue
        known = [(other, each) for other, each in of_a if each.numel() == own.numel() and 1 < each.ndim <= MOST_DIMS]
        if any(each.shape == own.shape and torch.equal(each, own) for _, each in known):
            continue
        found = (_scaled(name, own, other, each) for other, each in known)
        each = next((each for each in found if each is not None), None)
        if each is not None:
            yield each


def _scaled(name: str, own: Tensor, other: str, of_a: Tensor) -> _Scaled | None:
    """Return how a weight of b is one of a with factors along a dimension; ``None`` where it is not."""
    zeros = [(x.abs() <= NOTHING * x.abs().max()).sum().item() for x in (own, of_a)]
    if zeros[0] != zeros[1] or zeros[0] == own.numel():
        return None
    for order in itertools.permutations(range(of_a.ndim)):
        laid_out = of_a.permute(order)
        if not _joins(laid_out.shape, own.shape):
            continue
        b, a = own.reshape(laid_out.shape).double(), laid_out.double()
        is_zero = [x.abs() <= NOTHING * x.abs().max() for x in (b, a)]
        if not torch.equal(*is_zero):
            continue
        ratios = b / a.masked_fill(is_zero[1], 1.0)
        for along in range(a.ndim):
            factors = _factors(ratios, ~is_zero[1], along)
            if factors is not None and (factors.max() - factors.min()).abs() > CLOSE * factors.abs().max():
                turned = list(order) != sorted(order)
                return _Scaled(name, other, own, laid_out, along, factors.to(own.dtype), turned)
    return None


def _factors(ratios: Tensor, counts: Tensor, along: int) -> Tensor | None:
    """Return the one ratio of each slice along a dimension; ``None`` where a slice has several, or too few say so."""
    rows, known = (x.movedim(along, 0).flatten(1) for x in (ratios, counts))
    if known.sum() - len(rows) < LEAST or not known.any(1).all():
        return None
    low = rows.masked_fill(~known, math.inf).min(1).values
    high = rows.masked_fill(~known, -math.inf).max(1).values
    return low if bool((high - low <= CLOSE * high.abs()).all()) else None


def _joins(shape: Sequence[int], joined: Sequence[int]) -> bool:
    """Is a shape that of another one with neighbouring dimensions joined?"""
    sizes, at = list(shape), 0
    for size in joined:
        product = 1
        while at < len(sizes) and product < size:
            product *= sizes[at]
            at += 1
        if product != size:
            return False
    return all(size == 1 for size in sizes[at:])
