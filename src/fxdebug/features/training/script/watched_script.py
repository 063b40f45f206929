"""The trainings of one script: a watch on each model, from the first step of its optimizer to the end of the script."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from fxdebug.capture.torch_state.module_members import parameters_of
from fxdebug.errors import first_line
from fxdebug.features.training.watch import Watch
from fxdebug.printable import printable

EVERY = 50
MOST = 8  # models


class WatchedScript:
    """Watches every model that an optimizer of this process trains; what runs in a process that it forks is not seen.

    The first model's training is written to ``folder``, those of further ones to folders inside of it. ``tries`` are
    the seconds in which advice is tried at the end, for each model.
    """

    def __init__(self, folder: Path, tries: float = 0.0) -> None:
        self._folder, self._tries = folder, tries
        self._process = os.getpid()  # a process that it forks later ends by itself
        self._seen: set[int] = set()
        self._watches: list[tuple[nn.Module, Watch, Path]] = []
        self._is_busy = False
        atexit.register(self._end)

    def on_step(self, optimizer: Optimizer) -> None:
        """Begin to watch the model whose parameters an optimizer has, at its first step."""
        if id(optimizer) in self._seen or self._is_busy:
            return
        self._seen.add(id(optimizer))
        self._is_busy = True
        try:
            self._begin(optimizer)
        except Exception as error:  # the script goes on as without
            self._say(f"an optimizer is not watched: {type(error).__name__}: {first_line(error)}")
        finally:
            self._is_busy = False

    def _begin(self, optimizer: Optimizer) -> None:
        model = model_of(optimizer)
        if model is None:
            self._say(f"{type(optimizer).__name__} has parameters of no module that is left: it is not watched")
            return
        if any(model is known for known, _, _ in self._watches) or len(self._watches) >= MOST:
            return
        number = len(self._watches) + 1
        folder = self._folder if number == 1 else self._folder / f"{type(model).__name__}-{number}"
        watch = Watch(model, None, EVERY, folder, "forward", tries=self._tries > 0)
        watch.__enter__()
        self._watches.append((model, watch, folder))

    def _end(self) -> None:
        """End all watches, and say what they found on the standard error."""
        if os.getpid() != self._process:
            return
        error = getattr(sys, "last_value", None)
        self._is_busy = True  # optimizers of trials are ours
        for model, watch, folder in self._watches:
            try:
                watch.__exit__(None if error is None else type(error), error, None)
                self._say(f"{type(model).__name__}: {watch.verdict(0.0 if error else self._tries)} ({folder})")
            except Exception as ours:
                self._say(f"{type(model).__name__}: {type(ours).__name__}: {first_line(ours)}")

    def _say(self, what: str) -> None:
        if sys.stderr is not None:
            print(printable(f"fxdebug: {what}"), file=sys.stderr)


def model_of(optimizer: Optimizer) -> nn.Module | None:
    """Return the outermost module that has parameters of an optimizer; of several the one with the most of them.

    Where none has any (it was made for another copy of the model), the largest module that asks for gradients.
    """
    wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
    modules = [one for one in gc.get_objects() if _is_module(one)]
    inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
    best: tuple[tuple[int, int], nn.Module] | None = None
    for module in modules:
        if id(module) in inner:
            continue
        own = [p for p in parameters_of(module) if p.requires_grad]
        rank = (sum(id(p) in wanted for p in own), sum(p.numel() for p in own))
        if own and (best is None or rank > best[0]):
            best = rank, module
    return None if best is None else best[1]


def _is_module(thing: Any) -> bool:
    return issubclass(type(thing), nn.Module) and "_modules" in thing.__dict__  # asked of its class: proxies answer
