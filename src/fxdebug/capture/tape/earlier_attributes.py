"""Attributes that a module's own call replaces or fills: their values before the call.

A body may keep what it computes, as in ``if self.anchors is None: self.anchors = …`` or ``self.masks[size] = mask``.
After the run, the same Python would take the other branch. So a symbolic trace can begin with these attributes as they
were. Methods of other modules may do the same while a body runs: :class:`RunStart` has what was plain when the run
began.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fxdebug.capture.tape.encoding import ATOMS
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.native.dispatch import natively

_ABSENT = object()
_MOST_ITEMS = 1_000  # of a container
_OF_ALL = frozenset(vars(nn.Module()))


class Noted(NamedTuple):
    """The attributes of a module, its buffers, and the contents of its lists and dicts."""

    attributes: dict[str, Any]
    buffers: dict[str, Any]
    containers: list[tuple[Any, Any]]


@natively("attributes_now", Noted, _OF_ALL)
def attributes_now(module: nn.Module) -> Noted | None:
    """Return the attributes and buffers of a module; ``None`` for a module of torch's own, which keeps nothing."""
    buffers = module.__dict__.get("_buffers")
    if type(buffers) is not dict or keeps_nothing(type(module)):
        return None  # scripted modules have them in C++
    attributes = module.__dict__.copy()
    containers = [
        (thing, thing.copy())
        for name, thing in attributes.items()
        if (type(thing) is dict or type(thing) is list) and name not in _OF_ALL and len(thing) < _MOST_ITEMS
    ]
    return Noted(attributes, buffers.copy(), containers)


def keeps_nothing(kind: type[nn.Module]) -> bool:
    """Is this a class of torch's own, whose modules keep nothing of their calls?"""
    return kind.__module__.startswith("torch.nn.modules.")


@natively("is_unchanged")
def is_unchanged(module: nn.Module, noted: Noted) -> bool:
    """Has a module the attributes, buffers and contents of containers that were noted of it?"""
    return (
        _are_same(noted.attributes, module.__dict__)
        and _are_same(noted.buffers, module._buffers)
        and all(_are_same_items(before, thing) for thing, before in noted.containers)
    )


class EarlierAttributes:
    """Attributes and buffers of a module as they were before its call changed them. No tensor is kept alive."""

    def __init__(self) -> None:
        self._attributes: dict[str, Any] = {}
        self._buffers: dict[str, Any] = {}
        self._containers: list[tuple[Any, Any]] = []

    @classmethod
    def changed(cls, module: nn.Module, noted: Noted) -> EarlierAttributes | None:
        """Compare a module with what was noted of it; ``None`` if nothing was replaced."""
        if is_unchanged(module, noted):
            return None
        containers = [(thing, before) for thing, before in noted.containers if not _are_same_items(before, thing)]
        found = cls()
        found._attributes = _replaced(noted.attributes, module.__dict__)
        found._buffers = _replaced(noted.buffers, module._buffers)
        found._containers = [(thing, _without_tensors(before)) for thing, before in containers]
        return found if found._attributes or found._buffers or found._containers else None

    @classmethod
    def since(cls, module: nn.Module, plain: dict[str, Any]) -> EarlierAttributes | None:
        """Compare a module with its plain attributes of an earlier moment; ``None`` if they are the same."""
        now, found = module.__dict__, cls()
        for name, thing in plain.items():
            if now.get(name, _ABSENT) is not thing:
                found._attributes[name] = thing
            elif thing and type(thing) in (dict, list):  # it was empty
                found._containers.append((thing, type(thing)()))
        return found if found._attributes or found._containers else None

    def put_back(self, module: nn.Module) -> None:
        """Give the module these attributes again, as far as they are still there."""
        for earlier, present in ((self._attributes, module.__dict__), (self._buffers, module._buffers)):
            for name, kept in earlier.items():
                value = kept() if isinstance(kept, weakref.ref) else kept
                if value is _ABSENT:
                    present.pop(name, None)
                elif value is not None or kept is None:
                    present[name] = value
        for container, kept in self._containers:
            if type(container) is list:
                container[:] = _present(kept)
            else:
                container.clear()
                container.update(zip(kept, _present(kept.values())))


class RunStart:
    """The plain attributes of modules when a run began: numbers, texts, flags, ``None``, and empty lists and dicts.

    Nothing of the program is kept alive by it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._noted = [
            (module, _plain_attributes(module))
            for module in modules_of(model)
            if not type(module).__module__.startswith("torch.nn.modules.")
        ]
        self._earlier: list[tuple[nn.Module, EarlierAttributes]] = []

    def compare(self) -> RunStart | None:
        """Find what is another now; return this object, or ``None`` if there is nothing."""
        self._earlier = [
            (module, earlier)
            for module, plain in self._noted
            if (earlier := EarlierAttributes.since(module, plain)) is not None
        ]
        self._noted = []
        return self if self._earlier else None

    def put_back(self, module: nn.Module) -> None:
        """Give all modules these attributes again."""
        for owner, earlier in self._earlier:
            earlier.put_back(owner)


_PLAIN = frozenset((bool, int, float, str, type(None)))


def _plain_attributes(module: nn.Module) -> dict[str, Any]:
    return {
        name: thing
        for name, thing in module.__dict__.items()
        if (type(thing) in _PLAIN or ((type(thing) is dict or type(thing) is list) and not thing))
        and name not in _OF_ALL
    }


def _are_same(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return len(before) == len(now) and list(map(id, before.values())) == list(map(id, now.values()))


def _are_same_items(before: Any, now: Any) -> bool:
    if type(now) is dict:
        return _are_same(before, now) and list(before) == list(now)
    return len(before) == len(now) and list(map(id, before)) == list(map(id, now))


def _without_tensors(container: Any) -> Any:
    """Return a copy of a list or dict with weak references in the place of tensors."""
    if type(container) is list:
        return [_weak(thing) for thing in container]
    return {key: _weak(thing) for key, thing in container.items()}


def _weak(thing: Any) -> Any:
    return weakref.ref(thing) if isinstance(thing, Tensor) else thing


def _present(kept: Iterable[Any]) -> list[Any]:
    return [thing() if isinstance(thing, weakref.ref) else thing for thing in kept]


def _replaced(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: _ABSENT for name in now if name not in before}
    for name, value in before.items():
        if now.get(name, _ABSENT) is value:
            continue
        if isinstance(value, Tensor):
            found[name] = weakref.ref(value)
        elif type(value) in ATOMS or type(value) is torch.Size:
            found[name] = value
    return found
