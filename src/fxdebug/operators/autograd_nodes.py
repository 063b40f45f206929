"""Walk autograd's graph from one of its nodes to the leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def new_nodes(node: Any, known: set[Any]) -> Iterator[Any]:
    """Yield a node and those behind it that are not known yet, and add them to the known ones.

    Left out are the ends at leaves (``AccumulateGrad``): all runs of a model share them.

    >>> import torch
    >>> loss = (torch.ones(2, requires_grad=True) * 2).sum()
    >>> [node.name() for node in new_nodes(loss.grad_fn, set())]
    ['SumBackward0', 'MulBackward0']
    """
    pending = [node]
    while pending:
        node = pending.pop()
        if node is None or node in known or type(node).__name__ == "AccumulateGrad":
            continue
        known.add(node)
        yield node
        pending.extend(inner for inner, _ in node.next_functions)
