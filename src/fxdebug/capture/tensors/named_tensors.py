"""Tensors in arguments and results: of modules, with their places; of operations, as fast as it goes."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch import Tensor, nn


def named_tensors(content: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in arguments or results with their places, in order.

    >>> import torch
    >>> [place for place, tensor in named_tensors({"x": [torch.ones(1), 2], "y": torch.ones(2)})]
    ['x[0]', 'y']
    """
    pending = [(name, content)]
    seen: set[int] = set()
    while pending:
        place, item = pending.pop()
        if isinstance(item, Tensor):
            yield place, item
            continue
        if id(item) in seen or isinstance(item, (str, bytes, int, float, complex, type(None), nn.Module)):
            continue
        seen.add(id(item))
        inside: list[tuple[str, Any]] = []
        if isinstance(item, Mapping):
            inside = [(f"{place}.{key}" if place else str(key), inner) for key, inner in item.items()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            numbers = int, float  # of which there may be millions
            inside = [(f"{place}[{i}]", inner) for i, inner in enumerate(item) if type(inner) not in numbers]
        elif hasattr(item, "__dict__") and not isinstance(item, (type, types.FunctionType, types.ModuleType)):
            inside = [(f"{place}.{key}" if place else key, inner) for key, inner in vars(item).items()]
        pending += reversed(inside)


def tensors_in(arguments: Iterable[Any], depth: int = 4) -> Iterator[Tensor]:
    """Yield the tensors among arguments, in plain containers too.

    >>> import torch
    >>> len(list(tensors_in(({"x": [torch.ones(1), 2]}, torch.ones(2)))))
    2
    """
    for argument in arguments:
        kind = type(argument)
        if issubclass(kind, Tensor):
            yield argument
        elif depth and issubclass(kind, (list, tuple, dict)):  # iterated as by the base, whatever a subclass does
            inside = list.__iter__(argument) if issubclass(kind, list) else None
            inside = tuple.__iter__(argument) if issubclass(kind, tuple) else inside
            inside = iter(dict.values(argument)) if inside is None else inside
            yield from tensors_in(islice(inside, 1000), depth - 1)
