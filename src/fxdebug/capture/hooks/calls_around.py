"""Find modules whose call computes something around ``forward``: in hooks, or in a method of their class that calls it.

What these do is part of the body that calls the module, and of its graph: operations, but also other constants, another
order of arguments, a part of the result.
"""

from __future__ import annotations

import dis
import inspect
import weakref
from collections.abc import Iterable
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch import nn

from fxdebug.capture.torch_state.whose_code import is_part_of


class CallsAround:
    """Finds the modules in whose call, but not in whose ``forward``, something is computed.

    ``called`` are the modules that a body calls. ``computing`` are the ids of those that were found: from the beginning
    those whose class does more in its ``__call__`` than to pass everything on.
    """

    def __init__(self, called: Iterable[nn.Module]) -> None:
        called = list(called)
        self.computing = {id(module) for module in called if not passes_on(type(module))}
        self._codes = {id(_WITH_HOOKS): _WITH_HOOKS}  # by id: hashing code takes longer
        for kind in {type(module) for module in called}:
            for base in _below_module(kind):
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


def computes_around_forward(module: nn.Module) -> bool:
    """May a call of a module return something else than its ``forward`` and hooks, by an overridden method?"""
    return not passes_on(type(module)) or not vars(module).keys().isdisjoint(_CALLING)


def passes_on(kind: type[nn.Module]) -> bool:
    """Do the methods of a class through which ``forward`` is called pass all on, to it and to the caller?"""
    answer = _known.get(kind)
    if answer is None:
        found = [vars(base)[name] for base in _below_module(kind) for name in _CALLING if name in vars(base)]
        answer = _known[kind] = all(map(_only_passes_on, found))
    return answer


_known: weakref.WeakKeyDictionary[type[nn.Module], bool] = weakref.WeakKeyDictionary()


def _only_passes_on(method: Any) -> bool:
    if not isinstance(method, FunctionType):
        return False
    return is_part_of(method.__module__, "torch") or _only_calls_super(method.__code__)


def _only_calls_super(code: CodeType) -> bool:
    """Is a method no more than ``return super().__call__(*args, **kwargs)``?"""
    taken = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    steps = [each.opname for each in dis.get_instructions(code)]
    return (
        code.co_argcount == 1
        and code.co_kwonlyargcount == 0
        and code.co_flags & taken == taken
        and len(code.co_varnames) == 3
        and _NAMES.issuperset(code.co_names)
        and set(code.co_freevars) <= {"__class__"}
        and steps.count("CALL_FUNCTION_EX") == steps.count("DICT_MERGE") == 1
        and not any(step.startswith(_OTHERWISE) for step in steps)
    )


def _below_module(kind: type[nn.Module]) -> tuple[type, ...]:
    return kind.__mro__[: kind.__mro__.index(nn.Module)]


def _receiver(frame: FrameType) -> Any:
    """Return the object whose method runs in a frame: its first argument, also inside ``*args``."""
    code, variables = frame.f_code, frame.f_locals
    first = variables.get(code.co_varnames[0]) if code.co_varnames else None
    return first if code.co_argcount else first[0] if isinstance(first, tuple) and first else None


_CALLING = ("__call__", "_call_impl")  # methods through which torch calls ``forward``, and which a class may override
_NAMES = frozenset(("super", "nn", "torch", "Module", *_CALLING))
_OTHERWISE = (
    "BINARY",
    "BUILD_LIST",
    "BUILD_TUPLE",
    "BUILD_SLICE",
    "COMPARE",
    "POP",
    "SWAP",
    "UNARY",
    "UNPACK",
    "STORE",
)
_WITH_HOOKS = nn.Module._call_impl.__code__
