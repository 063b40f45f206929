"""Notice what a backward does otherwise as it runs modules again, as checkpointing does: random numbers, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import ForwardsOnly, Sites, untracked
from fxdebug.features.shared.records.gradients import Recomputed

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Recomputations(ForwardsOnly):
    """An observer of a model's modules in the forward, and of those that the backward calls.

    It reads the state of the global generators before and after each call. A module that draws in the forward, and in
    the backward from a state that it never had there, computes something else: ``found`` has it, with the outermost
    module that ran again around it. Generators of one's own are not seen. ``moved`` has the batch norms whose running
    statistics the backward moves once more.
    """

    def __init__(self, sites: Sites) -> None:
        self.found: list[Recomputed] = []
        self.moved: list[Recomputed] = []
        self.in_backward = False
        self._sites = sites
        self._began: dict[int, set[int]] = {}  # the states in which calls of a module began that drew, by its id
        self._open: list[str] = []  # paths of the calls that are open in the backward
        self._counted = 0  # calls that drew other numbers in the backward

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward, and note from which state of the generators it drew."""
        before, counted, mean = _state(), self._counted, _running_mean(module) if self.in_backward else None
        site = self._sites.of(module)
        path = "" if site is None else site.path
        self._open.append(path)
        try:
            return run(*args, **kwargs)
        finally:  # a recomputation ends with an exception of checkpoint's once it has what it needs
            if mean is not None and _has_moved(module, mean):
                one = Recomputed(path, type(module).__name__, self._open[0])
                self.moved += [] if one in self.moved else [one]
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


def _running_mean(module: nn.Module) -> Tensor | None:
    """Return a copy of the running mean of a batch norm; ``None`` for all other modules."""
    mean = module._buffers.get("running_mean") if isinstance(module, BATCH_NORMS) else None
    with untracked(), torch.no_grad():
        return None if mean is None else mean.detach().clone()


def _has_moved(module: nn.Module, before: Tensor) -> bool:
    mean = module._buffers.get("running_mean")
    with untracked(), torch.no_grad():
        return mean is not None and not torch.equal(mean, before)


def _state() -> int:
    """Return a number that is another one once a global generator drew."""
    with untracked():
        states = [torch.get_rng_state()]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states += torch.cuda.get_rng_state_all()
        return hash(tuple([state.numpy().tobytes() for state in states]))
