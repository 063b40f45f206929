"""What happened inside my PyTorch model, and where does it go wrong?

>>> import torch
>>> from fxdebug import fx_debug
>>> trace = fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
>>> trace.root.outputs[0].shape
(1, 2)

Importing does nothing and loads no torch; the names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # __init__.pyi has the names
    from fxdebug import api
    from fxdebug.api.names import is_public, public_names

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return sorted(public_names())
        if not is_public(name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(api, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *public_names()})
