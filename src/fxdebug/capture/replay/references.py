"""Count references to a tensor, and find out whether the program holds it in a place that no walk reaches."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.replay.introspect import items_of, members_in
from fxdebug.capture.replay.reachable import ReachableObjects
from fxdebug.capture.torch_state import internals


def references_to(tensor: Tensor) -> int:
    """Return the number of references from Python, the caller's included, without a reference from C++."""
    thing = object()
    passing = _count(thing) - 1  # references added by passing arguments; one more where dynamo watches all calls
    return sys.getrefcount(tensor) - passing - (internals.IS_COUNTED and tensor._use_count() > 1)


def _count(thing: object) -> int:
    return sys.getrefcount(thing)


class ArgumentReferences:
    """Arguments of a run, and the number of references that the program had to each tensor in them.

    After :meth:`count_again`, ``added`` has the number of references that the run added, by the ``id`` of the tensor.
    """

    def __init__(self, arguments: Any) -> None:
        self.arguments = arguments
        self._tensors = [leaf for leaf in _leaves(arguments) if issubclass(type(leaf), Tensor)]
        self._before = [references_to(tensor) for tensor in self._tensors]
        self.inside: dict[int, int] = {}  # references from the arguments when the run began, by ``id`` of the tensor
        with contextlib.suppress(Exception):  # a class of the program's may have an unusual ``__dict__``
            self.inside = _references_in([arguments], set())
        self.added: dict[int, int] = {}

    def count_again(self) -> None:
        """Count once more when the run is over, before its output is passed on."""
        now = [references_to(tensor) for tensor in self._tensors]
        self.added = {id(tensor): now[i] - self._before[i] for i, tensor in enumerate(self._tensors)}


def _leaves(arguments: Any) -> list[Any]:
    """Return what lies in the arguments. Of cycles, very deep lists and classes that raise, nothing: as if held."""
    try:
        return internals.tree_leaves(arguments)
    except Exception:
        return []


class KnownReferences:
    """References to tensors from known places: the program holds a tensor with more references somewhere else.

    Re-executing a body that made such a tensor would leave a placeholder where the program holds it. References from
    the results, from the arguments and from places reachable through the model do no harm: a trace builds its own
    containers for results and arguments, and a ``Snapshot`` restores the rest.

    Weak references could not tell. Autograd keeps tensors alive without any Python. And a tensor that is returned or
    passed may be held in another place as well, even by C code, and no placeholder could be removed from there.
    """

    def __init__(self, results: list[Any], arguments: ArgumentReferences, model: nn.Module) -> None:
        self._model = model
        self._visited: set[int] = set()
        self._in_results = _references_in(results, self._visited)
        self._in_arguments = _references_in([arguments.arguments], self._visited)
        self._were_in_arguments = arguments.inside
        self._in_model: dict[int, int] | None = None

    def has_unknown(self, tensor: Tensor, count: int, *, is_argument: bool) -> bool:
        """Is one of ``count`` references unknown? ``is_argument``: the tensor was among the run's arguments."""
        count -= self._in_results.get(id(tensor), 0)
        count -= self._in_arguments.get(id(tensor), 0)
        if is_argument:  # then ``count`` has only those that the run added
            count += self._were_in_arguments.get(id(tensor), 0)
        if count > 0:
            if self._in_model is None:  # only now: most runs keep nothing
                self._in_model = ReachableObjects(self._model, visited=self._visited).tensors
            count -= self._in_model.get(id(tensor), 0)
        return count > 0


_MOST_OBJECTS = 200_000  # visited at most


def _references_in(roots: list[Any], visited: set[int]) -> dict[int, int]:
    """Return how often each tensor is held by these objects and all they hold, by ``id``."""
    counts: dict[int, int] = {}
    pending = list(roots)
    while pending and len(visited) < _MOST_OBJECTS:
        thing = pending.pop()
        kind = type(thing)
        if issubclass(kind, Tensor):
            counts[id(thing)] = counts.get(id(thing), 0) + 1
            continue
        if id(thing) in visited or issubclass(kind, (str, bytes, int, float, type, nn.Module)):
            continue
        visited.add(id(thing))
        pending.extend(items_of(thing))
        pending.extend((members_in(thing) or {}).values())
    return counts
