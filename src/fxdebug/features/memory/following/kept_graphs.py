"""Find graphs of autograd that outlive their step, and the tensor that keeps them: ``total += loss`` above all."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from fxdebug.features.memory.following.referrers import holder_of
from fxdebug.operators.autograd_nodes import new_nodes

_KEY = "fxdebug.step"  # in the metadata of a node, which autograd keeps for others


class _Mark:
    """A mark on a node: it is gone when the node is. ``run`` tells the marks of one run from those of another."""

    def __init__(self, run: object, step: int) -> None:
        self.run = run
        self.step = step


class KeptGraphs:
    """Marks on the nodes of each step's graph, to count those that are left."""

    def __init__(self) -> None:
        self._run = object()
        self._marks: list[list[weakref.ref[_Mark]]] = []

    def watch(self, tensors: Iterable[Tensor], step: int) -> None:
        """Mark the nodes that the gradients of some tensors go through."""
        while len(self._marks) <= step:
            self._marks.append([])
        for node in _nodes(tensors):
            if self._step_of(node) is None:
                mark = node.metadata[_KEY] = _Mark(self._run, step)
                self._marks[step].append(weakref.ref(mark))

    def left(self) -> list[int]:
        """Return how many nodes of each step are alive."""
        return [sum(mark() is not None for mark in marks) for marks in self._marks]

    def holder(self) -> str:
        """Return words for what refers to the tensor whose gradient goes through the most steps, if there is one."""
        most, kept = 1, None
        for content in gc.get_objects():
            if issubclass(type(content), Tensor) and content.grad_fn is not None:
                steps = len({self._step_of(node) for node in _nodes([content])} - {None})
                if steps > most:
                    most, kept = steps, content
        content = None  # not to be found as what refers to it
        return "" if kept is None else holder_of(kept)

    def _step_of(self, node: Any) -> int | None:
        mark = node.metadata.get(_KEY)
        return None if mark is None or mark.run is not self._run else mark.step


def _nodes(tensors: Iterable[Tensor]) -> Iterator[Any]:
    """Yield the nodes below some tensors, without the ends at leaves, which all steps share."""
    seen: set[Any] = set()
    for tensor in tensors:
        yield from new_nodes(tensor.grad_fn, seen)
