"""Notice modules that a backward runs again, as checkpointing does, with other random numbers than the forward had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fxdebug.capture.hooks.observers import ForwardsOnly
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.measured.gradients import Recomputed


class Recomputations(ForwardsOnly):
    """An observer of a model's modules in the forward, and of those that the backward calls.

    It reads the state of the global generators before and after each call. A module that draws in the forward, and in
    the backward from a state that it never had there, computes something else: ``found`` has it, with the outermost
    module that ran again around it. Generators of one's own are not seen.
    """

    def __init__(self, sites: Sites) -> None:
        self.found: list[Recomputed] = []
        self.in_backward = False
        self._sites = sites
        self._began: dict[int, set[int]] = {}  # the states in which calls of a module began that drew, by its id
        self._open: list[str] = []  # paths of the calls that are open in the backward
        self._counted = 0  # calls that drew other numbers in the backward

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward, and note from which state of the generators it drew."""
        before, counted = _state(), self._counted
        site = self._sites.of(module)
        path = "" if site is None else site.path
        self._open.append(path)
        try:
            return run(*args, **kwargs)
        finally:  # a recomputation ends with an exception of checkpoint's once it has what it needs
            self._open.pop()
            if _state() != before:
                self._drew(module, path, before, counted)

    def _drew(self, module: nn.Module, path: str, before: int, counted: int) -> None:
        """Note a call that drew; in the backward, one that began in no state of the forward, and no inner one did."""
        if not self.in_backward:
            self._began.setdefault(id(module), set()).add(before)
        elif before not in self._began.get(id(module), {before}) and counted == self._counted:
            self._counted += 1
            one = Recomputed(path, type(module).__name__, self._open[0] if self._open else path)
            self.found += [] if one in self.found else [one]


def _state() -> int:
    """Return a number that is another one once a global generator drew."""
    with untracked():
        states = [torch.get_rng_state()]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states += torch.cuda.get_rng_state_all()
        return hash(tuple([state.numpy().tobytes() for state in states]))
