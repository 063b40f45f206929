"""A digest of what a model returned, where only statistics of it are kept: those do not tell another order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.stats.cpu_sums import array_of, is_freed

MOST = 64 << 20  # bytes: a second of one core reads twenty times as many
MOST_COPIED = 4 << 20  # bytes, of tensors of an accelerator
DEEPEST = 16  # containers in one another


def returned_bits(returned: Any) -> str | None:
    """Return a digest of all tensors that a model returned; ``None`` of large ones, and of other kinds of tensors.

    >>> returned_bits(torch.arange(3.0)) == returned_bits(torch.arange(3.0))
    True
    >>> returned_bits(torch.arange(3.0)) == returned_bits(torch.arange(3.0).flip(0))
    False
    """
    try:
        with untracked(), torch.no_grad():  # a recording around this one must see none of it
            return _digest_of(list(_tensors(returned, set())))
    except Exception:  # of memory that cannot be read: the run is the program's, and its digest is ours
        return None


def _digest_of(tensors: list[Tensor]) -> str | None:
    if not tensors or not all(map(_is_plain, tensors)):
        return None
    sizes = [(each.numel() * each.element_size(), each.device.type == "cpu") for each in tensors]
    if sum(size for size, _ in sizes) > MOST or sum(size for size, on_cpu in sizes if not on_cpu) > MOST_COPIED:
        return None
    digest = hashlib.sha256()
    for each in tensors:
        digest.update(f"{each.dtype}{tuple(each.shape)}".encode())
        flat = each.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        if flat.stride() != (1,):  # one element may have any
            flat = flat.clone(memory_format=torch.contiguous_format)
        digest.update(array_of(flat.view(torch.uint8)).data)
    return digest.hexdigest()


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
        and not is_freed(tensor)
    )


def _tensors(thing: Any, seen: set[int], depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors in what a model returned: in lists, tuples, dicts, and classes of these, each read once."""
    kind = type(thing)  # isinstance asks an object for its __class__, which may be code of the program
    if issubclass(kind, Tensor):
        yield thing
    elif depth <= DEEPEST and id(thing) not in seen and issubclass(kind, (dict, list, tuple)):
        seen.add(id(thing))  # a list that holds another one a thousand times
        walk = dict.values if issubclass(kind, dict) else list.__iter__ if issubclass(kind, list) else tuple.__iter__
        for each in walk(thing):
            yield from _tensors(each, seen, depth + 1)
