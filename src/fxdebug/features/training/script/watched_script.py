"""The trainings of one process: a watch on each model, from the first step of its optimizer to the end."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from types import FrameType

from torch import nn
from torch.optim import Optimizer

from fxdebug.capture.probe import members
from fxdebug.errors import first_line
from fxdebug.features.training.saved.training_file import file_of
from fxdebug.features.training.watch import Watch
from fxdebug.files.being_written import is_being_written, take_folder
from fxdebug.printable import printable
from fxdebug.store.rank_folders import rank_and_size

EVERY = 50
MOST = 8  # models
_HERE = "fxdebug.features.training.script."


class WatchedScript:
    """Watches every model that an optimizer of this process trains; what runs in a process that it forks is not seen.

    The first model's training is written to ``folder``, those of further ones to folders inside of it. Where another
    process writes to ``folder`` already, all are inside of it, in one that has this process's number; the ranks of a
    distributed training share it. ``tries`` are the seconds in which advice is tried at the end, for each model.
    """

    def __init__(self, folder: Path, tries: float = 0.0) -> None:
        self._folder, self._tries = folder, tries
        self._process = os.getpid()  # a process that it forks later ends by itself
        self._is_taken = False
        self._seen: set[int] = set()
        self._watches: list[tuple[nn.Module, Watch, Path]] = []
        self._is_busy = False
        atexit.register(self._end)
        if (processes := sys.modules.get("multiprocessing.util")) is not None and parent_process() is not None:
            processes.Finalize(None, self._end, exitpriority=0)  # one that was forked runs nothing at its exit
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def on_step(self, optimizer: Optimizer) -> None:
        """Begin to watch the model whose parameters an optimizer has, at its first step."""
        if id(optimizer) in self._seen or self._is_busy:
            return
        self._seen.add(id(optimizer))
        self._is_busy = True
        try:
            if not _is_ours():
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
        if not self._is_taken:
            self._folder, self._is_taken = own_folder(self._folder), True
        number = len(self._watches) + 1
        folder = self._folder if number == 1 else self._folder / f"{type(model).__name__}-{number}"
        watch = Watch(model, None, EVERY, folder, "forward", tries=self._tries > 0)
        watch.__enter__()
        self._watches.append((model, watch, folder))

    def _in_child(self) -> None:
        """Look at nothing more in a process that was forked: the trainings are its parent's."""
        try:
            for _, watch, _ in self._watches:
                watch.pause()
        except Exception as error:
            self._say(f"a forked process is still looked at: {type(error).__name__}: {first_line(error)}")

    def _end(self) -> None:
        """End all watches, and say what they found on the standard error."""
        if os.getpid() != self._process:
            return
        error = getattr(sys, "last_value", None)
        self._is_busy = True  # optimizers of trials are ours
        watches, self._watches = self._watches, []
        for model, watch, folder in watches:
            try:
                watch.__exit__(None if error is None else type(error), error, None)
                verdict = watch.verdict(0.0 if error else self._tries)
                self._say(f"{type(model).__name__}: {verdict} ({_as_seen_here(folder)})")
            except Exception as ours:
                self._say(f"{type(model).__name__}: {type(ours).__name__}: {first_line(ours)}")

    def _say(self, what: str) -> None:
        if sys.stderr is not None:
            with suppress(OSError, ValueError):  # it is closed, or nobody reads it
                print(printable(f"fxdebug: {what}"), file=sys.stderr)


def own_folder(folder: Path) -> Path:
    """Return a folder for this process alone: ``folder``, or one inside of it where another process has it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> own_folder(folder) == folder, own_folder(folder).name == f"process-{os.getpid()}"
    (True, True)
    """
    rank = rank_and_size()
    if is_being_written(file_of(folder, rank[0] if rank else None)):
        return folder / f"process-{os.getpid()}"
    if rank:  # each rank has a file of its own
        return folder
    return folder if take_folder(folder) else folder / f"process-{os.getpid()}"


def _is_ours() -> bool:
    """Does fxdebug itself make this step, as in a trial?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith("fxdebug.") and not name.startswith(_HERE):
            return True
        frame = frame.f_back
    return False


def _as_seen_here(folder: Path) -> Path:
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def model_of(optimizer: Optimizer) -> nn.Module | None:
    """Return the outermost module that has parameters of an optimizer; of several the one with the most of them.

    Where none has any (it was made for another copy of the model), the largest module that asks for gradients.
    """
    wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
    modules = members.modules_in_memory()
    inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
    best: tuple[tuple[int, int], nn.Module] | None = None
    for module in modules:
        if id(module) in inner:
            continue
        own = [p for p in members.parameters_of(module) if p.requires_grad]
        rank = (sum(id(p) in wanted for p in own), sum(p.numel() for p in own))
        if own and (best is None or rank > best[0]):
            best = rank, module
    return None if best is None else best[1]
