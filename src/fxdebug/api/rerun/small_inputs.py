"""Copies of what a model was given, where that is small plain data: its run can then be made again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.torch_state.untracked import untracked

MOST = 4 << 20  # bytes, so that a trace that keeps numbers only stays small
_PLAIN = (bool, int, float, complex, str, bytes, type(None))

Given: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments and the keyword arguments of a model."""


def small_inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Given | None:
    """Return copies of the inputs of a model; ``None`` where they are large, or hold something else than plain data.

    >>> small_inputs((torch.ones(2),), {"scale": 3})
    ((tensor([1., 1.]),), {'scale': 3})
    >>> small_inputs((object(),), {}) is None
    True
    """
    try:
        leaves = list(_leaves((args, dict(kwargs))))
    except TypeError:
        return None
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if sum(each.numel() * each.element_size() for each in tensors) > MOST:
        return None
    with untracked(), torch.no_grad():
        return _copied(args), _copied(dict(kwargs))


def _leaves(thing: Any) -> Iterator[Any]:
    """Yield what containers hold. Raises ``TypeError`` for what is no plain data."""
    if type(thing) in (list, tuple):
        for each in thing:
            yield from _leaves(each)
    elif type(thing) is dict:
        for each in thing.values():
            yield from _leaves(each)
    elif type(thing) in _PLAIN or (type(thing) is Tensor and thing.layout is torch.strided and not thing.is_meta):
        yield thing
    else:
        raise TypeError


def _copied(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        return thing.detach().clone().requires_grad_(thing.requires_grad)
    if type(thing) is dict:
        return {name: _copied(each) for name, each in thing.items()}
    return type(thing)(map(_copied, thing)) if type(thing) in (list, tuple) else thing
