"""The values that two runs have both, however their dimensions lie, and where one of them has others from then on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fxdebug.repair.rerun.lost_values import LEAST, Known, is_laid_out_as, known, orders_of, tolerance_in
from fxdebug.repair.rerun.replaced_operations import Place, Ran, tensors_in
from fxdebug.repair.rerun.replayed_run import KeptOperations, writes

MOST_EXACT = 4096  # elements of indices and masks
MOST_LAYOUTS = 6  # in which a value may be meant


class Made(NamedTuple):
    """A tensor of a run: the number of the operation that makes it, and which of its results it is."""

    number: int
    which: int


class RunOfValues:
    """The operations of a run with what they are given and return. What is written to is made anew."""

    def __init__(self, kept: KeptOperations) -> None:
        self.operations: list[tuple[Place | None, Ran]] = kept.operations
        self.results: list[list[Tensor]] = []
        self.known: list[list[Known | None]] = []  # of the results
        self.inputs: list[list[tuple[Tensor, Made | None]]] = []  # what makes each; none for weights
        made: dict[int, Made] = {}
        for number, (_, ran) in enumerate(kept.operations):
            self.inputs.append([(x, made.get(id(x))) for x in tensors_in((ran.args, dict(ran.kwargs)))])
            self.results.append(tensors_in(ran.result) or (tensors_in(ran.args[:1]) if writes(ran) else []))
            self.known.append([known(x) for x in self.results[-1]])
            made |= {id(x): Made(number, which) for which, x in enumerate(self.results[-1])}
            if writes(ran):
                made |= {id(x): Made(number, 0) for x in tensors_in(ran.args[:1])}
        self.parents = [{maker.number for _, maker in given if maker is not None} for given in self.inputs]
        self.constants: set[int] = set()  # made of nothing that the run was given
        for number, given in enumerate(self.inputs):
            if all(maker is not None and maker.number in self.constants for _, maker in given):
                self.constants.add(number)
        given = [(x, maker) for each in self.inputs for x, maker in each]
        self.given = list({id(x): x for x, maker in given if maker is None}.values())
        self._given = {id(x): Made(-1, at) for at, x in enumerate(self.given)}

    def made(self, number: int, slot: int) -> Made:
        """Return where a tensor that an operation is given comes from: below 0 is what no operation makes."""
        tensor, maker = self.inputs[number][slot]
        return self._given[id(tensor)] if maker is None else maker

    def behind(self, number: int) -> list[int]:
        """Return the numbers of an operation and of all that use what it makes."""
        found = {number}
        for at in range(number + 1, len(self.operations)):
            if self.parents[at] & found:
                found.add(at)
        return sorted(found)


class FacingValues:
    """Looks up tensors among the values of a run, with the dimensions of either in another order."""

    def __init__(self, run: RunOfValues) -> None:
        self._by_size: dict[int, list[tuple[Made, Known]]] = {}
        self._exact: dict[tuple[float, ...], list[Made]] = {}
        self._seen: dict[int, tuple[Tensor, list[Made]]] = {}  # by the identity of a tensor, which is kept alive
        given = [(Made(-1, at), tensor, known(tensor)) for at, tensor in enumerate(run.given)]
        made = [
            (Made(number, at), *each)
            for number, tensors in enumerate(run.results)
            for at, each in enumerate(zip(tensors, run.known[number]))
        ]
        for place, tensor, value in (*given, *made):
            if value is not None:
                self._by_size.setdefault(tensor.numel(), []).append((place, value))
            elif (exact := _exact(tensor)) is not None:
                self._exact.setdefault(exact, []).append(place)

    def find(self, tensor: Tensor) -> list[Made]:
        """Return where the run has a tensor, what is made first before the others."""
        if id(tensor) not in self._seen:
            self._seen[id(tensor)] = tensor, list(self._found(tensor))
        return self._seen[id(tensor)][1]

    def _found(self, tensor: Tensor) -> Iterator[Made]:
        value = known(tensor)
        if value is None:
            exact = _exact(tensor)
            yield from self._exact.get(exact, ()) if exact is not None else ()
            return
        tolerance = tolerance_in(tensor)
        for made, other in self._by_size.get(tensor.numel(), ()):
            if other.is_alike(value, tolerance) and is_laid_out_as(other, value, tolerance):
                yield made


def layouts_for(tensor: Tensor, wanted: Tensor) -> list[tuple[int, ...]]:
    """Return the orders of a tensor's dimensions in which it fits another one's shape: of as many, or some joined."""
    own = [size for size in wanted.shape if size != 1]
    fits = []
    for order in orders_of(tensor):
        sizes = [tensor.shape[dim] for dim in order if tensor.shape[dim] != 1]
        if sizes == own or (
            len(sizes) != len(own) and min(ends := [_ends(own), _ends(sizes)], key=len) <= max(ends, key=len)
        ):
            fits.append(order)
    return fits[:MOST_LAYOUTS]  # as it is first


def _ends(sizes: Sequence[int]) -> set[int]:
    return {math.prod(sizes[at:]) for at in range(len(sizes))}


def is_weight(tensor: Tensor) -> bool:
    """Is it a parameter?"""
    return isinstance(tensor, nn.Parameter)


def _exact(tensor: Tensor) -> tuple[float, ...] | None:
    """Return the elements of indices, of a mask or of few numbers; ``None`` where these are alike, or too many."""
    if tensor.layout != torch.strided or not 2 <= tensor.numel() <= MOST_EXACT or tensor.is_complex():
        return None
    if tensor.is_floating_point() and tensor.numel() >= LEAST:
        return None
    flat = tensor.detach().reshape(-1)
    return tuple(flat.tolist()) if bool((flat != flat[0]).any()) else None
