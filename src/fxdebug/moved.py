"""Old places of names that documentation has named: they are still there for one release, with a warning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable

MOVED = {
    "fxdebug.analyses.activations.findings": "fxdebug.features.shared.units.findings",
    "fxdebug.analyses.attention.findings": "fxdebug.features.attention.findings",
    "fxdebug.analyses.cost.profile_rules": "fxdebug.features.profile.findings",
    "fxdebug.analyses.gradients.rules": "fxdebug.features.shared.gradients.rules",
    "fxdebug.apps.agents.answers": "fxdebug.features.mcp.answers",
    "fxdebug.apps.lightning_callback": "fxdebug.features.training.callbacks.lightning_callback",
    "fxdebug.apps.pytest_plugin": "fxdebug.features.golden.pytest_plugin",
    "fxdebug.store.training_file": "fxdebug.features.training.saved.training_file",
    "fxdebug.apps.trainer_callback": "fxdebug.features.training.callbacks.trainer_callback",
}


def names_of(old: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module that has moved: it warns, and returns what the new one has."""

    def find(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(MOVED[old]), name)
        warnings.warn(f"{old} is now {MOVED[old]}; the old name goes with the next release", DeprecationWarning, 2)
        return found

    return find
