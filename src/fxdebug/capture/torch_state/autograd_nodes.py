"""Walk autograd's graph from one of its nodes to the leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def new_nodes(node: Any, known: set[Any]) -> Iterator[Any]:
    """Yield a node and those behind it that are not known yet, and add them to the known ones.

    Left out are the ends at leaves (``AccumulateGrad``): all runs of a model share them.
    """
    pending = [node]
    while pending:
        node = pending.pop()
        if node is None or node in known or type(node).__name__ == "AccumulateGrad":
            continue
        known.add(node)
        yield node
        pending.extend(inner for inner, _ in node.next_functions)
