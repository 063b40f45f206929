"""Number the calls of a run that is not recorded, in the thread that runs the model."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple

from torch import nn

from fxdebug.capture.probe import Sites


class NumberedCall(NamedTuple):
    """A call: its position among all of the run, its module, the calls of that before it, and the call around it."""

    position: int
    path: str
    number: int
    type: str
    parent: int | None


class OpenCalls:
    """The calls of a run. ``ran`` are all names of the modules that were called.

    >>> import torch
    >>> calls = OpenCalls(Sites(model := nn.ReLU()))
    >>> call, result = calls.run(model, lambda: model(torch.ones(1)))
    >>> call, calls.innermost()
    (NumberedCall(position=0, path='', number=0, type='ReLU', parent=None), None)
    """

    def __init__(self, sites: Sites) -> None:
        self.calls: list[NumberedCall] = []
        self.ran: set[str] = set()
        self._sites = sites
        self._owner = get_ident()
        self._open: list[int] = []
        self._numbers: dict[str, int] = {}

    def run(self, module: nn.Module, forward: Callable[[], Any]) -> tuple[NumberedCall | None, Any]:
        """Run a forward; return its call and its result.

        The call is ``None`` in another thread, and for a module that was not in the model at the start.
        """
        call = self._begin(module)
        try:
            return call, forward()
        finally:
            if call is not None:
                self._open.pop()

    def _begin(self, module: nn.Module) -> NumberedCall | None:
        site = self._sites.of(module)
        if site is None or get_ident() != self._owner:
            return None
        number = self._numbers[site.path] = self._numbers.get(site.path, -1) + 1
        call = NumberedCall(len(self.calls), site.path, number, site.type, self.innermost())
        self._open.append(call.position)
        self.calls.append(call)
        self.ran.update(site.aliases or (site.path,))
        return call

    def innermost(self) -> int | None:
        """Return the position of the innermost open call."""
        return self._open[-1] if self._open else None

    def path(self) -> str:
        """Return the path of the innermost open call; empty outside of the run."""
        return self.calls[self._open[-1]].path if self._open else ""
