"""Tensors in arguments and results, with their places."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
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
            inside = [(f"{place}[{i}]", inner) for i, inner in enumerate(item)]
        elif hasattr(item, "__dict__") and not isinstance(item, (type, types.FunctionType, types.ModuleType)):
            inside = [(f"{place}.{key}" if place else key, inner) for key, inner in vars(item).items()]
        pending += reversed(inside)
