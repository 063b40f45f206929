"""Wait for the first step of an optimizer: a hook that is put when torch's optimizers are imported."""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from fxdebug.features.training.script.start import SCRIPT, TRY, WATCH
from fxdebug.plugins.feature import at

AT = "torch.optim.optimizer"
WATCHED = "fxdebug.features.training.script.watched_script:WatchedScript"  # needs torch: when the script has it


def prepare() -> None:
    """Watch what the script of ``fxdebug watch`` trains: what names its folder is gone from the environment then."""
    folder, tries = os.environ.pop(SCRIPT, ""), os.environ.pop(TRY, "")
    if folder:
        atexit.register(_tell_where_nothing_stepped, _wait(Path(folder), tries, forks=False), os.getpid())


def _tell_where_nothing_stepped(watched: Mapping[int, Any], process: int) -> None:
    """Say on the standard error that a script has trained nothing, as far as its own process shows."""
    if process == os.getpid() and process not in watched and sys.stderr is not None:
        with suppress(OSError, ValueError):  # it is closed, or nobody reads it
            print(
                "fxdebug: nothing was watched: no optimizer of torch made a step in the script's own process "
                f"({WATCH}=FOLDER watches those that it starts, too)",
                file=sys.stderr,
            )


def prepare_from_environment() -> None:
    """Watch what this process trains where ``FXDEBUG_WATCH`` names a folder; processes that it starts inherit it.

    It is called when Python starts, by the line of ``fxdebug_watch.pth``: it tells what fails, and raises nothing.
    """
    try:
        folder = os.environ.get(WATCH, "")
        if folder:
            _wait(Path(folder), os.environ.get(TRY, ""), forks=True)
    except Exception as error:
        print(f"fxdebug: the script is not watched: {type(error).__name__}: {error}", file=sys.stderr)


def _wait(folder: Path, tries: str, *, forks: bool) -> Mapping[int, Any]:
    """Put the hook once torch has optimizers; return what will be watched by then, by process."""
    watched: dict[int, Any] = {}
    hook = partial(put_hook, folder=folder.absolute(), tries=float(tries or 0), forks=forks, watched=watched)
    known = sys.modules.get(AT)
    if known is not None:
        hook(known)
    else:
        sys.meta_path.insert(0, _Waiting(hook))
    return watched


class _Waiting(importlib.abc.MetaPathFinder):
    """Notes when one module is imported, and is gone then. It imports nothing itself: torch stays the script's."""

    def __init__(self, hook: Callable[[ModuleType], None]) -> None:
        self._hook = hook

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the module, with a loader that tells when it is done."""
        if name != AT:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._hook)
        return spec


class _Telling(importlib.abc.Loader):
    def __init__(self, loader: Any, hook: Callable[[ModuleType], None]) -> None:
        self._loader, self._hook = loader, hook

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and put the hook on the first steps."""
        self._loader.exec_module(module)
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        try:
            self._hook(module)
        except Exception as error:
            print(f"fxdebug: the script is not watched: {type(error).__name__}: {error}", file=sys.stderr)


def put_hook(
    optimizers: ModuleType, folder: Path, tries: float = 0.0, *, forks: bool = False,
    watched: dict[int, Any] | None = None,
) -> None:  # fmt: skip
    """Put a hook on the first step of each optimizer, which begins to watch the model that it trains.

    ``forks``: processes that this one forks are watched too, each in a folder of its own. ``watched`` gets what is
    watched, by process: one that is forked begins anew.
    """
    watched = {} if watched is None else watched
    began = os.getpid()

    def first_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        process = os.getpid()
        if process != began and not forks:
            return
        if process not in watched:
            watched[process] = at(WATCHED)(folder, tries)
        watched[process].on_step(optimizer)

    optimizers.register_optimizer_step_pre_hook(first_step)
