"""What running a body's Python a second time may touch, taken down before and put back after."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch
from torch import Tensor, nn

_CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque)
_OWN = ("_parameters", "_buffers", "_modules")


class State:
    """The attributes of every module of a model, the containers among them, and all random generators."""

    def __init__(self, model: nn.Module) -> None:
        self._attributes = [(module, dict(module.__dict__)) for module in model.modules()]
        self._containers = [
            (held, _contents(held))
            for _, attributes in self._attributes
            for held in attributes.values()
            if type(held) in _CONTAINERS
        ]
        self._torch = torch.get_rng_state()
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state_all() if cuda else None

    def put_back_attributes(self) -> None:
        """The modules' attributes and containers as they were, wherever they are not."""
        for container, contents in self._containers:
            if not _same(_contents(container), contents):
                _refill(container, contents)
        for module, attributes in self._attributes:
            now = module.__dict__
            if now.keys() != attributes.keys() or any(now[name] is not held for name, held in attributes.items()):
                now.clear()
                now.update(attributes)

    def put_back(self) -> None:
        """Everything as it was."""
        self.put_back_attributes()
        if not torch.equal(torch.get_rng_state(), self._torch):
            torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)


def _contents(container: Any) -> list[Any]:
    return list(container.items()) if isinstance(container, dict) else list(container)


def _same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(
        x is y or (type(x) is tuple and type(y) is tuple and all(a is b for a, b in zip(x, y)))
        for x, y in zip(now, before)
    )


def _refill(container: Any, contents: list[Any]) -> None:
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(contents)
    else:
        container.extend(contents)


def referred_to_elsewhere(thing: Any) -> bool:
    """Is a tensor referred to by more than one variable of the caller?"""
    if not isinstance(thing, Tensor):
        return False
    return sys.getrefcount(thing) - 3 - (thing._use_count() > 1) > 0


class References:
    """How many references the results of a run should have; a tensor with more is kept by somebody's Python.

    Tracing such a body again would put stand-ins where the program keeps its tensors. What a module
    keeps in its attributes does not count: :class:`State` puts those back.
    """

    MOST = 200_000  # objects looked at

    def __init__(self, roots: list[Any], model: nn.Module) -> None:
        self._count: dict[int, int] = {}
        self._seen: set[int] = set()
        kept = [held for module in model.modules() for held in module.__dict__.values()]
        self._walk(roots)
        self._walk([held for held in kept if isinstance(held, Tensor)])
        for container in kept:
            if type(container) in _CONTAINERS:
                items = list(container.values()) if isinstance(container, dict) else list(container)
                self._walk([item for item in items if isinstance(item, Tensor)])

    def kept_elsewhere(self, tensor: Tensor) -> bool:
        """Is the tensor referred to from a place that is not known? The caller may have one variable for it."""
        count = sys.getrefcount(tensor) - 3 - self._count.get(id(tensor), 0)  # 3: its variable, the argument twice
        return count - (tensor._use_count() > 1) > 0

    def _walk(self, roots: list[Any]) -> None:
        pending = list(roots)
        while pending and len(self._seen) < self.MOST:
            thing = pending.pop()
            if isinstance(thing, Tensor):
                self._count[id(thing)] = self._count.get(id(thing), 0) + 1
                continue
            if id(thing) in self._seen or isinstance(thing, (str, bytes, int, float, type, nn.Module)):
                continue
            self._seen.add(id(thing))
            if isinstance(thing, dict):
                pending.extend(thing.values())
            elif isinstance(thing, (list, tuple, set, frozenset, deque)):
                pending.extend(thing)
            attributes = getattr(thing, "__dict__", None)
            if isinstance(attributes, dict):
                pending.extend(attributes.values())
