"""Who keeps a tensor: how many references there are to it, and how many of them are known."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.replay.introspect import items_of, members_in
from fxdebug.capture.replay.reachable import ReachableObjects
from fxdebug.capture.torch_state import internals


def references_to(tensor: Tensor) -> int:
    """How many references to it the caller's side has: C++'s own one, if there is one, does not count."""
    thing = object()
    passing = _count(thing) - 1  # the argument here and that of getrefcount; one more where dynamo looks at all calls
    return sys.getrefcount(tensor) - passing - (internals.IS_COUNTED and tensor._use_count() > 1)


def _count(thing: object) -> int:
    return sys.getrefcount(thing)


class Passed:
    """What a run was given, and how many references the program had to each tensor in it."""

    def __init__(self, things: Any) -> None:
        self.things = things
        self._tensors = [leaf for leaf in internals.tree_leaves(things) if issubclass(type(leaf), Tensor)]
        self._before = [references_to(tensor) for tensor in self._tensors]
        self.more: dict[int, int] = {}  # how many more there are after the run, by the ``id`` of the tensor

    def close(self) -> None:
        """The run is over: count once more, before what it returned is passed on."""
        now = [references_to(tensor) for tensor in self._tensors]
        self.more = {id(tensor): now[i] - self._before[i] for i, tensor in enumerate(self._tensors)}


class References:
    """How many references to a tensor are known; one with more is kept by somebody's Python.

    A weak reference cannot tell: autograd keeps tensors alive without any Python, and one that is returned or given
    may be kept in a place of the program's own as well, perhaps by C, where a stand-in could not be taken out again.

    Tracing such a body again would put stand-ins where the program keeps its tensors. What the run was
    ``given`` and what is reached through the modules does not count: a trace gets other containers than the
    program's, and :class:`State` puts the rest back.
    """

    MOST = 200_000  # objects looked at

    def __init__(self, roots: list[Any], given: Any, model: nn.Module) -> None:
        self._model = model
        self._seen: set[int] = set()
        self._in_results = self._walk(roots)
        self._in_arguments = self._walk([given])
        self._reached: dict[int, int] | None = None

    def unknown(self, tensor: Tensor, count: int, *, passed: bool) -> bool:
        """Is there one among ``count`` references that is not known? ``passed``: the run was given this tensor."""
        count -= self._in_results.get(id(tensor), 0)
        if not passed:
            count -= self._in_arguments.get(id(tensor), 0)
        if count > 0:
            if self._reached is None:  # only now: most runs keep nothing
                self._reached = ReachableObjects(self._model, counted=self._seen).tensors
            count -= self._reached.get(id(tensor), 0)
        return count > 0

    def _walk(self, roots: list[Any]) -> dict[int, int]:
        counts: dict[int, int] = {}
        pending = list(roots)
        while pending and len(self._seen) < self.MOST:
            thing = pending.pop()
            kind = type(thing)
            if issubclass(kind, Tensor):
                counts[id(thing)] = counts.get(id(thing), 0) + 1
                continue
            if id(thing) in self._seen or issubclass(kind, (str, bytes, int, float, type, nn.Module)):
                continue
            self._seen.add(id(thing))
            pending.extend(items_of(thing))
            pending.extend((members_in(thing) or {}).values())
        return counts
