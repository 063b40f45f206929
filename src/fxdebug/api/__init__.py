"""The public functions: the only room that joins capture, store, comparison and exports.

Names are imported when they are first used. So ``import fxdebug`` loads neither torch nor networkx nor rich, and the
modules of this room import what they need at their tops. No module in here may have the name of a public function:
importing the module would hide the function.
"""

from __future__ import annotations

import importlib
import random
from typing import TYPE_CHECKING

if not TYPE_CHECKING:
    from fxdebug.api.names import every_name, module_of

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return sorted(every_name())
        module = module_of(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        state = random.getstate()  # rich draws a number when it is imported: the program draws the same as ever
        try:
            value = globals()[name] = getattr(importlib.import_module(module), name)
        finally:
            random.setstate(state)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *every_name()})
