"""The parts of a planned edit: places of b with what is computed there, and what that needs of both runs.

All values are then those of b, as it has them by then: with tensors of a, anything would be repaired.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fxdebug.comparison.diagnosis.weights.weight_slices import numberless
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.values import Value
from fxdebug.repair.rerun.replaced_operations import Place, Ran
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with

MOST_PLACES = 64  # of a line that runs many times


class Source(NamedTuple):
    """The place where b makes a value: an operation, which of its results, if several, and a's views of that."""

    place: Place
    at: int | None = None
    views: tuple[Place, ...] = ()


MOST_DIMS = 5  # that are put into other orders

EditOfPlace: TypeAlias = Callable[[Ran | None, Ran, Mapping[int, Tensor]], Any]
"""Computes an operation of b from that of a, from itself, and from values of b in the place of some of a's."""


class Earlier(NamedTuple):
    """A result of an operation computed anew: which one, which of its results, if several, and a's views of that."""

    operation: int
    at: int | None
    views: tuple[Place, ...]


class ComputedAnew(NamedTuple):
    """An operation of a computed anew, from values of b and from results before it, by the numbers of its tensors."""

    of_a: Place
    own: tuple[tuple[int, Source], ...]
    earlier: tuple[tuple[int, Earlier], ...]


@dataclass(frozen=True)
class Part:
    """An edit of one place of b, the operation of a that it needs, and the values of b in the place of some of a's.

    ``region`` are several operations of a, of which the last one's result is put in the place of b's: ``results`` says
    which of the results on both sides, where one has several, and ``order`` how the dimensions of a's lie in b.
    """

    place: Place
    of_a: Place | None
    make: EditOfPlace | None  # none for a region
    own: tuple[tuple[int, Source], ...] = ()  # by the number of the tensor among those that a's operation is given
    region: tuple[ComputedAnew, ...] = ()
    results: tuple[int | None, int | None] = (None, None)
    order: tuple[int, ...] = ()

    @property
    def sources(self) -> list[Source]:
        """All values of b that it needs."""
        return [source for _, source in (*self.own, *(own for each in self.region for own in each.own))]

    @property
    def seen_in_a(self) -> set[Place]:
        """All operations of a that it needs, as they ran."""
        views = {view for source in self.sources for view in source.views}
        views |= {view for each in self.region for _, earlier in each.earlier for view in earlier.views}
        return views | {each.of_a for each in self.region} | ({self.of_a} if self.of_a is not None else set())


@dataclass(frozen=True)
class PlannedEdit:
    """An edit in words, of one place of b or of several. ``is_cause``: it undoes what the finding says."""

    words: str
    parts: tuple[Part, ...]
    is_cause: bool = False
    names_why: bool = False  # it is what the finding says, though it takes several operations of a
    of_numbers: bool = False  # it puts the numbers of a there, which does not say why they are others

    @property
    def of_region(self) -> bool:
        """Does it put all that a does somewhere in the place of b's, which does not say what of it is wrong?"""
        return self.of_numbers or (not self.names_why and any(part.make is None for part in self.parts))


@dataclass(frozen=True)
class Sites:
    """The operations of a and b of a finding, and those that the same lines ran otherwise, in execution order."""

    pairs: tuple[tuple[Step, Step], ...]
    at: int  # the finding's own

    @property
    def own(self) -> tuple[Step, Step]:
        """The operations of the finding itself."""
        return self.pairs[self.at]


def and_more(count: int) -> str:
    """Return the end of a sentence on one place of an edit: in how many more it is made, if in any."""
    return f", and at {count} more place{'s' * (count > 1)}" if count else ""


def place_in(step: Step) -> Place:
    """Return the place of an operation in its run."""
    return step.call.index, step.node.id.rpartition("/")[2]


def line_of(run: StepList, at: Step) -> tuple[Step, ...]:
    """Return an operation, or all that its place in its line ran: in the calls of several layers, else in a loop."""
    source, weights = at.node.source, [given.is_weight for given in at.inputs]
    lines = [] if source is None else [step for step in run.steps if step.node.source == source]
    in_calls = [s for s in lines if place_in(s)[1] == place_in(at)[1] and is_alike(s.call.path, at.call.path)]
    in_loop = [s for s in lines if s.op == at.op and [given.is_weight for given in s.inputs] == weights]
    found = in_calls if len(in_calls) > 1 else in_loop
    return tuple(found) if 1 < len(found) <= MOST_PLACES else (at,)


def is_alike(path: str, other: str) -> bool:
    """Are two calls of one part of a model, in whatever layer?"""
    return numberless(f"{path}.") == numberless(f"{other}.")


def part_of(path: str) -> str:
    """Return the name that a call has in its parent, whatever its number: that of the layers' ``norms.1`` is ``norms``.

    >>> part_of("encoder.0.norms.1"), part_of("bottom.residual_norm")
    ('norms', 'residual_norm')
    """
    return next((name for name in reversed(path.split(".")) if not name.isdecimal()), "")


def parts_of(run: StepList, at: Step) -> tuple[Step, ...]:
    """Return an operation with those at its place in the code of all calls of its call's name in their parents."""
    alike = [s for s in run.steps if s.node.source == at.node.source and place_in(s)[1] == place_in(at)[1]]
    found = tuple([s for s in alike if part_of(s.call.path) == part_of(at.call.path)])
    return found if at.node.source and len(found) <= MOST_PLACES else (at,)


def number_of(run: StepList, value: Value, maker: Step) -> int | None:
    """Return which of several results of an operation a value is."""
    numbers = [result.number for result in maker.outputs]
    return numbers.index(run.root(value).number) if len(numbers) > 1 else None


def seen_as_in_a(tensor: Tensor, views: Sequence[Ran]) -> Tensor:
    """Return a tensor of b through the views that a has of its counterpart."""
    for view in views:
        tensor = computed_with(view, {0: tensor})
    return tensor


def as_laid_out(tensor: Tensor, wanted: Tensor) -> Tensor:
    """Return a tensor of b as its counterpart in a is laid out: with dimensions in another order, or others joined.

    Where several ways fit the sizes, it is the one with the numbers of a. Raises ``NoEdit`` where none fits.
    """
    is_alike = tensor.shape == wanted.shape
    if is_alike and (tensor.numel() < 2 or _has_numbers_of(tensor, wanted)):
        return tensor
    if not is_alike and [size for size in tensor.shape if size > 1] == [size for size in wanted.shape if size > 1]:
        return tensor.reshape(wanted.shape)
    if tensor.numel() != wanted.numel() or max(tensor.ndim, wanted.ndim) > MOST_DIMS:
        raise NoEdit
    orders = itertools.permutations(range(tensor.ndim)) if tensor.ndim == wanted.ndim else ()
    known = [view for order in orders if (view := tensor.permute(order)).shape == wanted.shape]
    if len(known) == 1:
        return known[0]
    for order in itertools.permutations(range(wanted.ndim)):
        split = tensor.reshape([wanted.shape[dim] for dim in order])
        known.append(split.permute([order.index(dim) for dim in range(wanted.ndim)]))
    way = next((view for view in known if _has_numbers_of(view, wanted)), None)
    if way is None and not is_alike:
        raise NoEdit
    return tensor if way is None else way


def _has_numbers_of(tensor: Tensor, wanted: Tensor) -> bool:
    return torch.allclose(tensor.to(wanted.dtype), wanted, rtol=1e-4, atol=1e-5)
