"""Hearing of the moment at which a module is imported: what watches it may not be the one to load it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class WhenImported:
    """Calls ``then`` with the module ``name`` as soon as somebody imports it; :meth:`stop` ends the waiting.

    It stands among Python's finders and finds nothing itself: the others find the module, and the loader
    that runs its code tells when that is done.
    """

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name = name
        self._then = then
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """No longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, where it is the module that is waited for."""
        if name != self._name:
            return None
        found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path) if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        loader: Any = None if spec is None else spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            run = loader.exec_module

            def run_and_tell(module: ModuleType) -> None:
                del loader.exec_module
                run(module)
                if self in sys.meta_path:
                    self._then(module)

            loader.exec_module = run_and_tell
        return spec
