"""Positions that a cache holds where a part of a sequence attends to it, beside those that the whole attends to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fxdebug.api.rerun.stretches import CLOSE
from fxdebug.data.measures import counted

LEAST = 2  # places of a cache


class Made(Protocol):
    """The tensor that an operation returned, with its name."""

    @property
    def op(self) -> str: ...

    @property
    def tensor(self) -> Tensor: ...


One = TypeVar("One", bound=Made)


def held_otherwise(
    whole: Sequence[Made], part: Sequence[One], start: int, count: int, length: int, *, causal: bool
) -> tuple[One, str] | None:
    """Return the first result on a part that holds other positions than its last one attends to in a, and which.

    ``whole`` are the results in a, of ``length`` positions, of which the part has ``count`` from ``start`` on. Nothing
    is told of a cache with something in it that a has nowhere, as keys that are turned once more. ``causal``: a
    fused attention of a says so.
    """
    last = start + count - 1
    wanted = _attended(whole, (length, length), last) or (set(range(last + 1)) if causal else set())
    if not start or not wanted:
        return None
    for result in part:
        for dim, size in enumerate(result.tensor.shape):
            if size == count or not LEAST <= size <= length + count or result.tensor.ndim < 3 or dim < 1:
                continue
            held = _held(whole, result.tensor, dim, length)
            if held is None or last not in held.values():
                continue
            seen = _attended(part, (count, size), count - 1) or set(range(size))
            rows = result.tensor.movedim(dim, 0).flatten(1)
            empty = [at for at in seen if at not in held]
            if any(bool(rows[at].any()) for at in empty):
                continue
            own = {held[at] for at in seen if at in held}
            if wanted - own or own - wanted or empty:
                holds = _ranges(own) + (f" and {counted(len(empty), 'empty place')}" if empty else "")
                return result, f"position {last} attends to {_ranges(wanted)} in a; here it attends to {holds}"
            return None  # what it holds is right
    return None


def _attended(results: Sequence[Made], sizes: tuple[int, int], row: int) -> Set[int]:
    """Return the keys that a row of attention has weights for, or that its mask leaves; empty where nothing tells."""
    weights = [each.tensor for each in results if each.op == "softmax" and tuple(each.tensor.shape[-2:]) == sizes]
    masks = [
        each.tensor for each in results if each.tensor.dtype == torch.bool and tuple(each.tensor.shape[-2:]) == sizes
    ]
    for tensor in (*weights, *(mask for mask in reversed(masks) if _shows(mask, row))):
        seen = tensor.reshape(-1, *sizes)[:, row].any(0)
        return {int(at) for at in seen.nonzero().flatten().tolist()}
    return set()


def _shows(mask: Tensor, row: int) -> bool:
    """Does a mask say what is seen, not what is hidden: the position itself?"""
    at = mask.shape[-1] - mask.shape[-2] + row
    return bool(mask.reshape(-1, *mask.shape[-2:])[:, row, at].all()) if 0 <= at < mask.shape[-1] else False


def _held(whole: Sequence[Made], cache: Tensor, dim: int, length: int) -> dict[int, int] | None:
    """Return by the places of a cache the positions of a that stand there; ``None`` where they are not told apart.

    Heads may be split there that are not in a: the numbers of a position stand in the same order.
    """
    places = cache.movedim(dim, 0).flatten(1)
    for each in whole:
        one = each.tensor
        for at in [
            at for at, size in enumerate(one.shape) if size == length and one.numel() == length * places.shape[1]
        ]:
            found = dict(_matches(one.movedim(at, 0).flatten(1), places)) if one.dtype == cache.dtype else {}
            if found and min(found.values()) >= 0:
                return found
    return None


def _matches(rows: Tensor, places: Tensor) -> Iterator[tuple[int, int]]:
    """Yield the places with the row that each is; -1 where it is like several."""
    limit = CLOSE * float(rows.abs().nan_to_num(0.0, 0.0, 0.0).max())
    for place, own in enumerate(places):
        if not bool(own.any()):
            continue
        alike = ((rows - own).abs().nan_to_num().amax(1) <= limit).nonzero().flatten().tolist()
        if alike:
            yield place, int(alike[0]) if len(alike) == 1 else -1


def _ranges(positions: Set[int]) -> str:
    """Return positions in few words.

    >>> _ranges({0, 1, 2, 5}), _ranges({3}), _ranges(set())
    ('0:3, 5', '3', 'none')
    """
    parts: list[list[int]] = []
    for at in sorted(positions):
        if parts and parts[-1][1] == at:
            parts[-1][1] = at + 1
        else:
            parts.append([at, at + 1])
    texts = [f"{start}:{stop}" if stop - start > 1 else f"{start}" for start, stop in parts]
    return ", ".join(texts) or "none"
