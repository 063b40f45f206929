"""The same sample with and without what stands beside it: which inputs are given, and which places are paired."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from fxdebug.errors import UsageError

Over: TypeAlias = Literal["batch", "length", "padding", "pack"]
KINDS: tuple[Over, ...] = get_args(Over)
MOST = 4  # samples that are run alone


FRAMES = 2  # by which strides and edges may leave more or fewer than the share of the tokens


@dataclass(frozen=True)
class Alone:
    """One sample alone: ``row`` and ``places`` are where it stands in what was given, of ``rows`` and ``length``.

    ``beside`` tells that others still stand beside it, and are others than in what was given.
    """

    name: str
    inputs: Mapping[str, Any]
    row: int | None
    rows: int
    places: Tensor | None
    length: int
    beside: bool = False

    def pair(self, tensor: Tensor, other: Tensor, half: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the parts of both results that belong to the sample, in one shape; ``None`` if none does.

        ``half`` is the result for half of the tokens: the dimensions that are shorter there are those of tokens.
        """
        if not self.beside:
            part = self._part(tensor, other)
            return None if part is None else (part, other)
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
            return None
        if (size, wanted) == (self.rows * self.length, len(kept)):
            return kept + self.row * self.length
        if size == self.rows * wanted:  # the batch, or the batch and its heads
            return torch.arange(wanted) + self.row * wanted
        if self._are_fewer(size, wanted):
            return torch.arange(wanted)
        return None

    def _are_fewer(self, size: int, wanted: int) -> bool:
        """Are these as many times fewer than the tokens, as strides leave them, of a sample at the start of its row?"""
        if self.places is None or not wanted < size < self.length or int(self.places[-1]) != len(self.places) - 1:
            return False
        return abs(size * len(self.places) - wanted * self.length) <= FRAMES * self.length


def token_dims_of(inputs: Mapping[str, Any], over: Over) -> list[int]:
    """Return the dimensions of the first input that may be that of tokens: of a signal it may be the last one."""
    first = next((value for value in inputs.values() if isinstance(value, Tensor) and value.ndim), None)
    if over != "length" or first is None or first.ndim != 3:
        return [1]
    return [dim for dim in (1, 2) if first.shape[dim] > 1] or [1]


def without_others(
    inputs: Mapping[str, Any], over: Over, pads: Collection[int] = (), token_dim: int = 1
) -> Iterator[Alone]:
    """Yield the samples of some inputs alone; ``pads`` are the indices that embeddings of the model take for padding.

    Raises ``UsageError`` where the inputs have nothing to leave out.
    """
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    first = next((value for value in tensors.values() if value.ndim), None)
    if first is None:
        raise UsageError(f"over={over!r} needs a tensor among the inputs: none of {', '.join(inputs) or 'them'} is one")
    rows, length = first.shape[0], first.shape[token_dim] if first.ndim > 1 else first.shape[0]
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
        cut = {name: _at(value, places, length, first=token_dim) for name, value in inputs.items()}
        yield Alone(f"the first half (tokens 0 to {len(places) - 1})", cut, None, rows, places, length)
        yield from _with_other_ends(inputs, first, rows, length, token_dim)
    elif over == "padding":
        yield from _unpadded(inputs, tensors, first, rows, pads)
    else:
        yield from _unpacked(inputs, tensors)


def _with_other_ends(
    inputs: Mapping[str, Any], first: Tensor, rows: int, length: int, token_dim: int
) -> Iterator[Alone]:
    """Yield the inputs with other tokens at the end: blocks that end where the first half does hide nothing from it."""
    places = torch.arange(length - (1 if length % 2 == 0 else 2))
    if not len(places):
        return
    changed = first.clone()
    changed.narrow(token_dim, len(places), length - len(places)).copy_(first.narrow(token_dim, 0, 1))
    if torch.equal(changed, first):
        return
    given = {name: changed if value is first else value for name, value in inputs.items()}
    yield Alone(f"the start (tokens 0 to {len(places) - 1})", given, None, rows, places, length, beside=True)


def _unpadded(
    inputs: Mapping[str, Any], tensors: Mapping[str, Tensor], first: Tensor, rows: int, pads: Collection[int]
) -> Iterator[Alone]:
    whole = next((t for name, t in tensors.items() if "mask" in name and t.ndim > 2 and t.shape == first.shape), None)
    if whole is not None and not bool(whole.bool().all()):
        yield from _without_edges(inputs, whole.bool(), rows)
        return
    mask = next((_kept(name, t) for name, t in tensors.items() if _is_mask(name, t, first)), None)
    shares: set[str] = set()
    if mask is None:
        mask = next((_counted(t, first) for name, t in tensors.items() if _are_lengths(name, t, first)), None)
    if mask is None:
        shares = {name for name, t in tensors.items() if _are_shares(name, t, first)}
        mask = next((_counted((tensors[name] * first.shape[1]).round(), first) for name in shares), None)
    if mask is None and first.ndim == 2 and not first.is_floating_point():
        mask = next((kept for pad in pads if not bool((kept := first != pad).all())), None)
    if mask is None or bool(mask.all()) or not bool(mask.any(1).all()):
        raise UsageError(
            "over='padding' needs a mask of shape (rows, tokens) among the inputs, with 0 where padding is, or lengths "
            "(whole numbers, or shares of the longest), of which one is shorter, or the padding_idx of an embedding"
        )
    length = mask.shape[1]
    padded = [row for row in range(rows) if not bool(mask[row].all())]
    for row in padded[:MOST]:
        places = mask[row].nonzero().flatten().cpu()
        alone = {name: _at(_row(value, row, rows), places, length, first=1) for name, value in inputs.items()}
        alone |= {name: torch.ones_like(alone[name]) for name in shares}  # of its own longest sample
        yield Alone(f"row {row}", alone, row, rows, places, length)


def _without_edges(inputs: Mapping[str, Any], mask: Tensor, rows: int) -> Iterator[Alone]:
    """Yield rows of tables without the padding of one dimension, each dimension by itself: lines, then columns."""
    for dim in range(1, mask.ndim):
        kept = mask.movedim(dim, 1).flatten(2).any(2)
        for row in [row for row in range(rows) if not bool(kept[row].all()) and bool(kept[row].any())][:MOST]:
            places, length = kept[row].nonzero().flatten().cpu(), mask.shape[dim]
            alone = {name: _at_dim(_row(value, row, rows), places, length, dim) for name, value in inputs.items()}
            yield Alone(f"row {row}, in dimension {dim},", alone, row, rows, places, length)


def _at_dim(value: Any, places: Tensor, length: int, dim: int) -> Any:
    if isinstance(value, Tensor) and value.ndim > dim and value.shape[dim] == length:
        return value.index_select(dim, places.to(value.device))
    return value


def _is_mask(name: str, tensor: Tensor, first: Tensor) -> bool:
    return "mask" in name and tensor.ndim == 2 and tensor.shape[0] == first.shape[0] and tensor.shape[1] in first.shape


def _kept(name: str, mask: Tensor) -> Tensor:
    """Return where tokens are: a row without padding tells which of both that is, else the name does."""
    marked = mask.bool()
    if bool(marked.all(1).any()):
        return marked
    hides = not bool(marked.any(1).all()) or (mask.dtype == torch.bool and "padding" in name)
    return ~marked if hides else marked


def _are_lengths(name: str, tensor: Tensor, first: Tensor) -> bool:
    whole = tensor.ndim == 1 and not tensor.is_floating_point() and tensor.dtype != torch.bool
    named = any(word in name for word in ("len", "count", "size", "num"))
    if not whole or not named or first.ndim < 2 or len(tensor) != first.shape[0]:
        return False
    return 0 < int(tensor.min()) <= max(first.shape[1:])


def _are_shares(name: str, tensor: Tensor, first: Tensor) -> bool:
    """Are these lengths as shares of the longest sample, which is 1?"""
    if tensor.ndim != 1 or not tensor.is_floating_point() or "len" not in name or first.ndim < 2:
        return False
    return len(tensor) == first.shape[0] and float(tensor.min()) > 0 and float(tensor.max()) == 1.0


def _counted(lengths: Tensor, first: Tensor) -> Tensor:
    """Return where tokens are; they are counted along the dimension that is as long as the longest sample."""
    longest = int(lengths.max())
    length = longest if longest in first.shape[1:] else max(first.shape[1:])
    return torch.arange(length, device=lengths.device) < lengths[:, None]


def _unpacked(inputs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Iterator[Alone]:
    rows: list[list[int]] = []
    for name, tensor in sorted(tensors.items(), key=lambda item: "position" not in item[0]):
        if "cu_seq" in name or "cu_len" in name:
            rows = [tensor.tolist()]
        elif not rows and tensor.ndim and not tensor.is_floating_point() and tensor.numel() > 1:
            found = [_bounds(row, "position" in name) for row in tensor.reshape(-1, tensor.shape[-1]).tolist()]
            rows = found if all(found) else []
    if not any(len(bounds) > 2 and bounds[0] == 0 for bounds in rows):
        raise UsageError(
            "over='pack' needs position_ids that begin again at 0 for each sample, cumulative lengths (cu_seqlens), or "
            "the number of its sample for each token (0, 0, 0, 1, 1)"
        )
    if rows.count(rows[0]) == len(rows):  # where samples begin at the same places, they are taken out of all rows
        rows = rows[:1]
    samples = [
        (row, number, start, end) for row, each in enumerate(rows) for number, (start, end) in enumerate(pairwise(each))
    ]
    for row, number, start, end in samples[:MOST]:
        places, length = torch.arange(start, end), rows[row][-1]
        own = inputs if len(rows) == 1 else {name: _row(value, row, len(rows)) for name, value in inputs.items()}
        alone = {
            name: torch.tensor([0, end - start], dtype=value.dtype, device=value.device)
            if isinstance(value, Tensor) and "cu_" in name
            else _at(value, places, length, first=0)
            for name, value in own.items()
        }
        if len(rows) == 1:
            yield Alone(f"sample {number}", alone, None, 1, places, length)
        else:
            yield Alone(f"row {row} #{number}", alone, row, len(rows), places, length)


def _bounds(row: list[int], are_positions: bool) -> list[int]:
    """Return where samples begin, and the end: by positions that begin again at 0, or by a number for each sample.

    >>> _bounds([0, 1, 2, 0, 1], False), _bounds([1, 1, 1, 2, 2], False), _bounds([7, 3, 3, 9], False)
    ([0, 3, 5], [0, 3, 5], [])
    """
    steps = [after - before for before, after in pairwise(row)]
    count_on = row[0] == 0 and all(step == 1 or after == 0 for step, after in zip(steps, row[1:]))
    if are_positions or count_on:
        return [place for place, at in enumerate(row) if at == 0] + [len(row)]
    if row[0] in (0, 1) and set(steps) == {0, 1}:
        return [0, *[place + 1 for place, step in enumerate(steps) if step], len(row)]
    return []


def _row(value: Any, row: int, rows: int) -> Any:
    return value[row : row + 1] if isinstance(value, Tensor) and value.ndim and value.shape[0] == rows else value


def _at(value: Any, places: Tensor, length: int, first: int) -> Any:
    """Return the chosen places of every dimension from ``first`` on that is as long as the tokens."""
    if isinstance(value, Tensor):
        for dim in range(first, value.ndim):
            if value.shape[dim] == length:
                value = value.index_select(dim, places.to(value.device))
    return value
