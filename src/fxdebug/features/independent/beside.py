"""The same sample with and without what stands beside it: which inputs are given, and which places are paired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from fxdebug.errors import UsageError

Over: TypeAlias = Literal["batch", "length", "padding", "pack"]
KINDS: tuple[Over, ...] = get_args(Over)
MOST = 4  # samples that are run alone


@dataclass(frozen=True)
class Alone:
    """One sample alone: ``row`` and ``places`` are where it stands in what was given, of ``rows`` and ``length``."""

    name: str
    inputs: Mapping[str, Any]
    row: int | None
    rows: int
    places: Tensor | None
    length: int

    def part(self, tensor: Tensor, other: Tensor) -> Tensor | None:
        """Return the part of a result that belongs to the sample, in the shape of ``other``; ``None`` if none does."""
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
            return None
        if (size, wanted) == (self.rows * self.length, len(kept)):
            return kept + self.row * self.length
        if size == self.rows * wanted:  # the batch, or the batch and its heads
            return torch.arange(wanted) + self.row * wanted
        return None


def without_others(inputs: Mapping[str, Any], over: Over) -> Iterator[Alone]:
    """Yield the samples of some inputs alone. Raises ``UsageError`` where the inputs have nothing to leave out."""
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    first = next((value for value in tensors.values() if value.ndim), None)
    if first is None:
        raise UsageError(f"over={over!r} needs a tensor among the inputs: none of {', '.join(inputs) or 'them'} is one")
    rows, length = first.shape[0], first.shape[1] if first.ndim > 1 else first.shape[0]
    if over == "batch":
        if rows < 2:
            raise UsageError("over='batch' needs at least two samples: the first input has one row")
        for row in range(min(rows, MOST)):
            alone = {name: _row(value, row, rows) for name, value in inputs.items()}
            yield Alone(f"row {row}", alone, row, rows, None, length)
    elif over == "length":
        if first.ndim < 2 or length < 2:
            raise UsageError("over='length' needs inputs of at least two tokens, in dimension 1")
        places = torch.arange((length + 1) // 2)
        cut = {name: _at(value, places, length, first=1) for name, value in inputs.items()}
        yield Alone(f"the first half (tokens 0 to {len(places) - 1})", cut, None, rows, places, length)
    elif over == "padding":
        yield from _unpadded(inputs, tensors, rows, length)
    else:
        yield from _unpacked(inputs, tensors)


def _unpadded(inputs: Mapping[str, Any], tensors: Mapping[str, Tensor], rows: int, length: int) -> Iterator[Alone]:
    mask = next((t for name, t in tensors.items() if "mask" in name and t.shape == (rows, length)), None)
    if mask is None or bool(mask.bool().all()) or not bool(mask.bool().any(1).all()):
        raise UsageError(
            "over='padding' needs a mask of shape (rows, tokens) among the inputs, with 0 where padding is"
        )
    padded = [row for row in range(rows) if not bool(mask[row].bool().all())]
    for row in padded[:MOST]:
        places = mask[row].bool().nonzero().flatten().cpu()
        alone = {name: _at(_row(value, row, rows), places, length, first=1) for name, value in inputs.items()}
        yield Alone(f"row {row}", alone, row, rows, places, length)


def _unpacked(inputs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Iterator[Alone]:
    bounds: list[int] = []
    for name, tensor in tensors.items():
        if "position" in name and tensor.ndim and not tensor.is_floating_point() and tensor.numel() > 1:
            flat = tensor.reshape(-1, tensor.shape[-1])[0].tolist()
            bounds = [place for place, at in enumerate(flat) if at == 0] + [len(flat)]
        elif "cu_seq" in name or "cu_len" in name:
            bounds = tensor.tolist()
    if len(bounds) < 3 or bounds[0] != 0:
        raise UsageError(
            "over='pack' needs position_ids that begin again at 0 for each sample, or cumulative lengths (cu_seqlens)"
        )
    length = bounds[-1]
    for number, (start, end) in enumerate(list(pairwise(bounds))[:MOST]):
        places = torch.arange(start, end)
        alone = {
            name: torch.tensor([0, end - start], dtype=value.dtype, device=value.device)
            if isinstance(value, Tensor) and "cu_" in name
            else _at(value, places, length, first=0)
            for name, value in inputs.items()
        }
        yield Alone(f"sample {number}", alone, None, 1, places, length)


def _row(value: Any, row: int, rows: int) -> Any:
    return value[row : row + 1] if isinstance(value, Tensor) and value.ndim and value.shape[0] == rows else value


def _at(value: Any, places: Tensor, length: int, first: int) -> Any:
    """Return the chosen places of every dimension from ``first`` on that is as long as the tokens."""
    if isinstance(value, Tensor):
        for dim in range(first, value.ndim):
            if value.shape[dim] == length:
                value = value.index_select(dim, places.to(value.device))
    return value
