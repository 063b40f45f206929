"""Find modules whose call computes something around ``forward``: in hooks, or in a method of their class that calls it.

These operations are part of the body that calls the module, and of its graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

from torch import nn


class CallsAround:
    """Finds the modules in whose call, but not in whose ``forward``, something is computed.

    ``called`` are the modules that a body calls. ``computing`` are the ids of those that were found.
    """

    def __init__(self, called: Iterable[nn.Module]) -> None:
        self.computing: set[int] = set()
        self._codes = {id(_WITH_HOOKS): _WITH_HOOKS}  # by id: hashing code takes longer
        for kind in {type(module) for module in called}:
            for base in kind.__mro__[: kind.__mro__.index(nn.Module)]:
                for name in _CALLING:
                    code = getattr(base.__dict__.get(name), "__code__", None)
                    if code is not None:
                        self._codes[id(code)] = code

    def note(self, frame: FrameType | None, body: CodeType, called: nn.Module | None = None) -> None:
        """Note the modules in whose calls an operation is made, or the call of another module, ``called``.

        ``frame`` is where it is made; the search ends at the function with the code ``body``.
        """
        codes = self._codes
        while frame is not None and frame.f_code is not body:
            if id(frame.f_code) in codes:
                module = _receiver(frame)
                if isinstance(module, nn.Module) and module is not called:
                    self.computing.add(id(module))
            frame = frame.f_back


def _receiver(frame: FrameType) -> Any:
    """Return the object whose method runs in a frame: its first argument, also inside ``*args``."""
    code, variables = frame.f_code, frame.f_locals
    first = variables.get(code.co_varnames[0]) if code.co_varnames else None
    return first if code.co_argcount else first[0] if isinstance(first, tuple) and first else None


_CALLING = ("__call__", "_call_impl")  # methods through which torch calls ``forward``, and which a class may override
_WITH_HOOKS = nn.Module._call_impl.__code__
