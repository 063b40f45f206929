"""Copies of what a model was given, where that is small plain data: its run can then be made again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.stats.cpu_sums import is_freed

MOST = 4 << 20  # bytes, so that a trace that keeps numbers only stays small
MOST_LEAVES = 10_000  # numbers, tensors, and containers as often as they are held
DEEPEST = 16  # containers in one another
_PLAIN = (bool, int, float, complex, str, bytes, type(None))

Given: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments and the keyword arguments of a model."""


def small_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given | None:
    """Return copies of the inputs of a model; ``None`` where they are large, or hold something else than plain data.

    >>> small_inputs((torch.ones(2),), {"scale": 3})
    ((tensor([1., 1.]),), {'scale': 3})
    >>> small_inputs((object(),), {}) is None
    True
    """
    with untracked(), torch.no_grad():  # a recording around this one must see none of it
        try:
            leaves = list(itertools.islice(_leaves((args, kwargs)), MOST_LEAVES + 1))
        except TypeError:
            return None
        if len(leaves) > MOST_LEAVES:
            return None
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if sum(each.numel() * each.element_size() for each in tensors) > MOST:
            return None
        return _copied(args), _copied(kwargs)


def _leaves(thing: Any, depth: int = 0) -> Iterator[Any]:
    """Yield containers and what they hold. Raises ``TypeError`` for what is no plain data, or is nested deep.

    A key of another class has a hash of its own, which would be code of the program.
    """
    if depth > DEEPEST:
        raise TypeError
    if type(thing) in (list, tuple):
        yield thing
        for each in thing:
            yield from _leaves(each, depth + 1)
    elif type(thing) is dict and all(type(key) in (str, int) for key in thing):
        yield thing
        for each in thing.values():
            yield from _leaves(each, depth + 1)
    elif type(thing) in _PLAIN or _is_dense(thing):
        yield thing
    else:
        raise TypeError


def _is_dense(thing: Any) -> bool:
    """Is it a plain tensor whose memory the program has not given back?"""
    return type(thing) is Tensor and thing.layout is torch.strided and not thing.is_meta and not is_freed(thing)


def _copied(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        return thing.detach().clone().requires_grad_(thing.requires_grad)
    if type(thing) is dict:
        return {name: _copied(each) for name, each in thing.items()}
    return type(thing)(map(_copied, thing)) if type(thing) in (list, tuple) else thing
