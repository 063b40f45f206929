"""Wait for the first step of an optimizer: a hook that is put when torch's optimizers are imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fxdebug.features.training.script.start import TRY, WATCH
from fxdebug.plugins.feature import at

AT = "torch.optim.optimizer"
WATCHED = "fxdebug.features.training.script.watched_script:WatchedScript"  # needs torch: when the script has it


def prepare() -> None:
    """Watch what this script trains, in the folder that the environment names; nothing where it names none."""
    folder, tries = os.environ.pop(WATCH, ""), os.environ.pop(TRY, "")
    if folder:
        sys.meta_path.insert(0, _Waiting(Path(folder), float(tries or 0)))


class _Waiting(importlib.abc.MetaPathFinder):
    """Notes when one module is imported, and is gone then. It imports nothing itself: torch stays the script's."""

    def __init__(self, folder: Path, tries: float) -> None:
        self._folder, self._tries = folder, tries

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the module, with a loader that tells when it is done."""
        if name != AT:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._folder, self._tries)
        return spec


class _Telling(importlib.abc.Loader):
    def __init__(self, loader: Any, folder: Path, tries: float) -> None:
        self._loader, self._folder, self._tries = loader, folder, tries

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
            put_hook(module, self._folder, self._tries)
        except Exception as error:
            print(f"fxdebug: the script is not watched: {type(error).__name__}: {error}", file=sys.stderr)


def put_hook(optimizers: ModuleType, folder: Path, tries: float = 0.0) -> None:
    """Put a hook on the first step of each optimizer, which begins to watch the model that it trains."""
    watched: list[Any] = []
    process = os.getpid()

    def first_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if os.getpid() != process:  # one that the script forked
            return
        if not watched:
            watched.append(at(WATCHED)(folder, tries))
        watched[0].on_step(optimizer)

    optimizers.register_optimizer_step_pre_hook(first_step)
