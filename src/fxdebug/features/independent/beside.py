"""The same sample with and without what stands beside it: which places of the results are paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FRAMES = 2  # by which strides and edges may leave more or fewer than the share of the tokens


@dataclass(frozen=True)
class Alone:
    """One sample alone: ``row`` and ``places`` are where it stands in what was given, of ``rows`` and ``length``.

    ``beside`` tells that others still stand beside it, and are others than in what was given. ``shares_row``: others
    stand in its row, too, so that what a row returns as one, such as a last state, may differ.
    """

    name: str
    inputs: Mapping[str, Any]
    row: int | None
    rows: int
    places: Tensor | None
    length: int
    beside: bool = False
    shares_row: bool = False

    @property
    def is_from_the_first(self) -> bool:
        """Are its tokens the first ones of what was given?"""
        return self.places is not None and self.places.tolist()[:1] == [0]

    def pair(self, tensor: Tensor, other: Tensor, cut: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
        """Return the parts of both results that belong to the sample, in one shape; ``None`` if none does.

        ``cut`` has the result for half of the tokens: the dimensions that are shorter there are those of tokens.
        """
        if not self.beside:
            part = self._part(tensor, other)
            return None if part is None else (part, other)
        half = cut[0] if cut else None
        if tensor.shape != other.shape or half is None or half.ndim != tensor.ndim:
            return None
        for dim, (size, less) in enumerate(zip(tensor.shape, half.shape)):
            if size != less:
                places = self._beside(size)
                if places is None:
                    return None
                tensor, other = (one.index_select(dim, places.to(one.device)) for one in (tensor, other))
        return tensor, other

    def token_dims(self, whole: Tensor, part: Tensor) -> list[int]:
        """Return the dimensions of a result that its part has the sample's tokens alone of."""
        if self.places is None:
            return []
        return [
            dim
            for dim, (size, kept) in enumerate(zip(whole.shape, part.shape))
            if size != kept and kept == len(self.places)
        ]

    def _beside(self, size: int) -> Tensor | None:
        assert self.places is not None
        if size == self.length:
            return self.places
        if size == self.rows * self.length:
            return (torch.arange(self.rows)[:, None] * self.length + self.places).flatten()
        return None

    def _part(self, tensor: Tensor, other: Tensor) -> Tensor | None:
        if tensor.ndim != other.ndim:
            return None
        for dim, (size, wanted) in enumerate(zip(tensor.shape, other.shape)):
            if size == wanted:
                continue
            places = self._places(size, wanted)
            if places is None:
                return None
            tensor = tensor.index_select(dim, places.to(tensor.device))
        return tensor

    def _places(self, size: int, wanted: int) -> Tensor | None:
        kept = torch.arange(self.length) if self.places is None else self.places
        if (size, wanted) == (self.length, len(kept)):
            return kept
        if self.row is None:
            if (size, wanted) == (self.rows * self.length, self.rows * len(kept)):
                return self._beside(size)
            return torch.arange(wanted) if self._are_fewer(size, wanted) else None
        if (size, wanted) == (self.rows * self.length, len(kept)):
            return kept + self.row * self.length
        if size == self.rows * wanted:  # the batch, or the batch and its heads
            return torch.arange(wanted) + self.row * wanted
        return torch.arange(wanted) if self._are_fewer(size, wanted) else None

    def _are_fewer(self, size: int, wanted: int) -> bool:
        """Are these as many times fewer than the tokens, as strides leave them, of a sample at the start of its row?"""
        if self.places is None or not wanted < size < self.length or int(self.places[-1]) != len(self.places) - 1:
            return False
        return abs(size * len(self.places) - wanted * self.length) <= FRAMES * self.length


@dataclass(frozen=True)
class AloneInPack(Alone):
    """One sample of a pack in one row: the ``number`` of it, of ``samples``, each of which may have one result."""

    number: int = 0
    samples: int = 0

    def pair(self, tensor: Tensor, other: Tensor, cut: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
        """Return the parts of both results that belong to the sample: its tokens, or its own one of all samples."""
        if self._of_samples(tensor, other):
            return tensor.narrow(0, self.number, 1), other
        return Alone.pair(self, tensor, other, cut)

    def token_dims(self, whole: Tensor, part: Tensor) -> list[int]:
        """Return the dimensions of a result that its part has what is the sample's alone of."""
        return [0] if self._of_samples(whole, part) else Alone.token_dims(self, whole, part)

    def _of_samples(self, tensor: Tensor, other: Tensor) -> bool:
        shapes = tuple(tensor.shape), tuple(other.shape)
        return shapes == ((self.samples, *shapes[1][1:]), (1, *shapes[1][1:])) and self.samples != self.length


@dataclass(frozen=True)
class AloneInList(Alone):
    """One of several inputs that a model joins itself, such as images of other sizes; ``row`` is its number."""

    def pair(self, tensor: Tensor, other: Tensor, cut: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
        """Return the parts of both results that belong to the sample; ``cut`` are those of all samples alone.

        Along a dimension they may stand one behind the other, or all begin at 0, and be as long as the longest.
        """
        if len(cut) != self.rows or any(each.ndim != tensor.ndim for each in cut) or self.row is None:
            return None
        for dim, size in enumerate(tensor.shape):
            sizes = [each.shape[dim] for each in cut]
            if size == sum(sizes):
                tensor = tensor.narrow(dim, sum(sizes[: self.row]), sizes[self.row])
            elif size == max(sizes):
                tensor = tensor.narrow(dim, 0, sizes[self.row])
            elif size != sizes[self.row]:
                return None
        return tensor, other
