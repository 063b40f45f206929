"""Hearing of the moment at which a module is imported: what watches it may not be the one to load it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from fxdebug.capture.hooks.patch import OwnAttribute, Patch


class WhenImported(Patch):
    """Calls ``then`` with the module ``module`` as soon as somebody imports it, while it is put.

    It stands among Python's finders and finds nothing itself: the others find the module, and the loader
    that runs its code tells when that is done.
    """

    def __init__(self, module: str, then: Callable[[Any], None]) -> None:
        super().__init__("sys.meta_path")
        self._module = module
        self._then = then
        self._loaders: list[Patch] = []

    def read(self) -> Any:
        """Return what is there now."""
        return self if self in sys.meta_path else None

    def write(self, content: Any) -> None:
        """Become the first finder, or be none any more."""
        if content is self:
            sys.meta_path.insert(0, self)
        while content is None and self in sys.meta_path:
            sys.meta_path.remove(self)

    def replacement(self, found: Any) -> Any:
        """Return what stands in for it."""
        return self

    def restore(self) -> None:
        """Be no finder any more, and leave the loaders that were found meanwhile as they were."""
        super().restore()
        while self._loaders:
            self._loaders[-1].restore()
            self._loaders.pop()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, where it is the module that is waited for."""
        if name != self._module:
            return None
        found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path) if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "exec_module") and hasattr(loader, "__dict__"):
            run = loader.exec_module

            def run_and_tell(module: ModuleType) -> None:
                patch.restore()
                run(module)
                if self.is_put:
                    self.restore()
                    self._then(module)

            patch = OwnAttribute("<loader>.exec_module", loader.__dict__, "exec_module", run_and_tell)
            self._loaders.append(patch)
            patch.put()
        return spec
