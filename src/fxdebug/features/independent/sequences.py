"""Inputs that hold the tokens, and the dimensions in which: by their sizes, and by what stands at their ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fxdebug.errors import UsageError


@dataclass(frozen=True)
class Tokens:
    """Places of the tokens, ``length`` of them: some dimensions of inputs. ``name`` and ``dim`` are the first."""

    name: str
    dim: int
    length: int
    dims: Mapping[str, tuple[int, ...]]

    @property
    def text(self) -> str:
        """The first place in words."""
        return f"dimension {self.dim} of {self.name.replace('*', 'argument ')}"

    def at(self, inputs: Mapping[str, Any], places: Tensor) -> dict[str, Any]:
        """Return inputs with some of their tokens."""
        kept = dict(inputs)
        for name, dims in self.dims.items():
            for dim in dims:
                kept[name] = kept[name].index_select(dim, places.to(kept[name].device))
        return kept


def tensors_of(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the inputs that are tensors."""
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor)}


def along(inputs: Mapping[str, Any], name: str, dim: int, first: int = 1) -> list[Tokens]:
    """Return the ways in which tokens may lie along a dimension of an input, and of others of that size.

    The first dimension is that of the batch. An image or a video may have that size by chance: in it, other dimensions
    are none of tokens; nor are those of an image that stands beside the tokens.
    """
    tensors = tensors_of(inputs)
    length = tensors[name].shape[dim]
    same = {
        each: tuple([at for at in range(first, tensor.ndim) if tensor.shape[at] == length])
        for each, tensor in tensors.items()
    }
    here = {each: (dim,) for each, dims in same.items() if dim in dims}
    square = {
        each: (0, 1) for each, tensor in tensors.items() if tuple(tensor.shape) == (length, length) and each != name
    }
    own = {name: (dim,)}
    images = [each for each, one in tensors.items() if one.ndim > 3 and each != name and "mask" not in each]
    likely = {each: dims for each, dims in same.items() if each not in images}
    options: list[Mapping[str, tuple[int, ...]]] = [] if tensors[name].ndim > 3 else [likely]
    options += [likely | own, same, likely | own | square, here | own, own]
    found: list[Tokens] = []
    for option in options:
        dims = {each: places for each, places in option.items() if places}
        if dim in dims.get(name, ()) and all(dims != one.dims for one in found):
            found.append(Tokens(name, dim, length, dims))
    return found


def told(inputs: Mapping[str, Any], dim: int | Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the input and the dimension that a caller names; raise ``UsageError`` where there is none."""
    tensors = tensors_of(inputs)
    if not isinstance(dim, int):
        unknown = [name for name in dim if name not in tensors]
        if unknown or not dim:
            raise UsageError(f"dim={dict(dim)!r}: give the names of tensors among {', '.join(tensors) or 'the inputs'}")
        places = list(dim.items())
    else:
        name = next((name for name, tensor in tensors.items() if -tensor.ndim <= dim < tensor.ndim), None)
        if name is None:
            raise UsageError(f"dim={dim}: no tensor among the inputs has this dimension")
        places = [(name, dim)]
    for name, at in places:
        if not -tensors[name].ndim <= at < tensors[name].ndim:
            raise UsageError(f"dim={dim!r}: {name} has {tensors[name].ndim} dimensions")
    return [(name, at % tensors[name].ndim) for name, at in places]


def of_told(inputs: Mapping[str, Any], dim: int | Mapping[str, int]) -> list[Tokens]:
    """Return the ways in which tokens may lie as a caller says; all inputs that a mapping names, and these alone."""
    (name, at), *others = told(inputs, dim)
    if isinstance(dim, int):
        return along(inputs, name, at, first=0 if at == 0 else 1)
    length = inputs[name].shape[at]
    if any(inputs[other].shape[there] != length for other, there in others):
        raise UsageError(f"dim={dict(dim)!r}: these dimensions have other sizes")
    return [Tokens(name, at, length, {name: (at,)} | {other: (there,) for other, there in others})]


def sequences(inputs: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the dimensions that may be those of tokens: of ids, of masks, then of all others, in order."""
    tensors = tensors_of(inputs)
    tables = [name for name, tensor in tensors.items() if tensor.ndim == 2 and tensor.shape[1] > 1]
    ids = [name for name in tables if is_whole(tensors[name]) and "mask" not in name]
    masks = [name for name in tables if "mask" in name]
    for name in (*ids, *masks):
        yield name, 1
    for name, tensor in tensors.items():
        if name not in ids and name not in masks:
            yield from ((name, dim) for dim in range(1, tensor.ndim) if tensor.shape[dim] > 1)


def is_whole(tensor: Tensor) -> bool:
    """Does a tensor hold whole numbers?"""
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool


def padded_from(tensor: Tensor, dim: int, lengths: Tensor, row_dim: int = 0) -> bool:
    """Is what stands beyond the length of each row one number, and not what stands before it?"""
    rows = tensor.movedim((row_dim, dim), (0, 1))
    shorter = [(row, int(length)) for row, length in zip(rows, lengths.tolist()) if int(length) < rows.shape[1]]
    return bool(shorter) and all(
        bool((row[length:] == row[-1].flatten()[0]).all()) and not bool((row == row[-1].flatten()[0]).all())
        for row, length in shorter
    )
