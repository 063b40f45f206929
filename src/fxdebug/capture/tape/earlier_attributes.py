"""Attributes that a module's own call replaces: their values before the call.

A body may keep what it computes, as in ``if self.anchors is None: self.anchors = …``. After the run, the same Python
would take the other branch. So a symbolic trace can begin with these attributes as they were.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.tape.encoding import ATOMS

Noted = tuple[dict[str, Any], dict[str, Any]]  # the attributes of a module, and its buffers
_ABSENT = object()


def attributes_now(module: nn.Module) -> Noted | None:
    """Return the attributes and buffers of a module; ``None`` for a module of torch's own, which keeps nothing."""
    buffers = module.__dict__.get("_buffers")
    if type(buffers) is not dict or type(module).__module__.startswith("torch.nn.modules."):
        return None  # scripted modules have them in C++
    return module.__dict__.copy(), buffers.copy()


class EarlierAttributes:
    """Attributes and buffers of a module as they were before its call replaced them. No tensor is kept alive."""

    def __init__(self) -> None:
        self._attributes: dict[str, Any] = {}
        self._buffers: dict[str, Any] = {}

    @classmethod
    def changed(cls, module: nn.Module, noted: Noted) -> EarlierAttributes | None:
        """Compare a module with what was noted of it; ``None`` if nothing was replaced."""
        attributes, buffers = noted
        if _are_same(attributes, module.__dict__) and _are_same(buffers, module._buffers):
            return None
        found = cls()
        found._attributes = _replaced(attributes, module.__dict__)
        found._buffers = _replaced(buffers, module._buffers)
        return found if found._attributes or found._buffers else None

    def put_back(self, module: nn.Module) -> None:
        """Give the module these attributes again, as far as they are still there."""
        for earlier, present in ((self._attributes, module.__dict__), (self._buffers, module._buffers)):
            for name, kept in earlier.items():
                value = kept() if isinstance(kept, weakref.ref) else kept
                if value is _ABSENT:
                    present.pop(name, None)
                elif value is not None or kept is None:
                    present[name] = value


def _are_same(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return len(before) == len(now) and list(map(id, before.values())) == list(map(id, now.values()))


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
