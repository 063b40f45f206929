"""What decides how operations and calls go, and stands in no graph: modes, settings, context variables, environment.

A body may set any of it around an operation or a call and put it back. Random state has ``randomness``, what modules
and the program's own code hold has ``state``, and others of torch's settings are not set again at all (``settings``).
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.reasons import CannotTrace, Words
from fxdebug.capture.torch_state import internals

# Settings that are variables of torch's Python. Each is looked at where it matters.
_EINSUM = (("torch.backends.opt_einsum", "enabled"), ("torch.backends.opt_einsum", "strategy"))
_CALLS = (
    *_EINSUM,
    ("torch.backends.mha", "_is_fastpath_enabled"),
    ("torch.nn.utils.parametrize", "_cache_enabled"),
)


# Their modes look at operations and return what these return. Ours is on while a body is traced.
_LOOKING_ON = ("torch.utils.checkpoint", "torch.utils.flop_counter", "fxdebug.")


# What these libraries keep in context variables gathers outputs and decides nothing.
_GATHERING = ("torch.", "transformers.")


class AmbientState:
    """How things are when a body begins, and whether they are that way when it goes on.

    ``is_altered_for``: would a call of this module find other attributes and objects than before the trace?
    """

    def __init__(self, is_altered_for: Callable[[nn.Module], bool]) -> None:
        self.altered: Words | None = None  # what was other for a module that the body called
        self._is_altered_for = is_altered_for

    def begin(self) -> None:
        """Things are now as they are when the body begins, with the mode of the trace on."""
        self._functions = changing_modes()
        self._modes = computing_modes()
        self._einsum = _values(_EINSUM)
        self._calls = _values(_CALLS)
        self._environment = environment()
        self._variables = contextvars.copy_context()

    def operation(self, function: Any = None) -> None:
        """The body calls a torch function. Raises :class:`Mismatch` if it may compute something else now."""
        if internals.len_torch_dispatch_stack() or self._modes:
            modes = computing_modes()
            if modes != self._modes:
                raise CannotTrace(reasons.OWN_MODE(modes=names_of(modes) or "none"))
        if function is torch.functional.einsum and _values(_EINSUM) != self._einsum:
            raise CannotTrace(reasons.CHANGES_TORCH_SETTING(name="opt_einsum"))

    def call(self, module: nn.Module) -> None:
        """The body calls a module: is anything other for it now? A graph calls it as things are."""
        self.operation()
        if not self.altered:
            self.altered = self._other()
        if not self.altered and self._is_altered_for(module):
            self.altered = reasons.CHANGES_AROUND_CALL()

    def _other(self) -> Words | None:
        """What is other now than when the body began."""
        functions = changing_modes()
        if functions != self._functions:
            return reasons.MODE_AROUND_CALL(modes=names_of(functions[len(self._functions) :]))
        if _values(_CALLS) != self._calls:
            return reasons.SETTING_AROUND_CALL()
        if environment() != self._environment:
            return reasons.ENVIRONMENT_AROUND_CALL()
        variable = next(self._other_variables(), None)
        return None if variable is None else reasons.VARIABLE_AROUND_CALL(name=variable.name)

    def _other_variables(self) -> Iterator[contextvars.ContextVar[Any]]:
        now, before = contextvars.copy_context(), self._variables
        for variable in {**now, **before}:
            if now.get(variable, _NOTHING) is not before.get(variable, _NOTHING) and not _gathers(variable):
                yield variable


_NOTHING = object()


def environment() -> dict[Any, Any]:
    """The environment's variables, as they are kept: to decode them takes a while."""
    return dict(getattr(os.environ, "_data", os.environ))


def computing_modes() -> tuple[Any, ...]:
    """The dispatch modes that are on in this thread and may change what an operation computes."""
    count = internals.len_torch_dispatch_stack()
    if not count:
        return ()
    modes = [internals.get_dispatch_stack_at(i) for i in range(count)]
    return tuple([mode for mode in modes if not type(mode).__module__.startswith(_LOOKING_ON)])


def changing_modes(above: int = 0) -> tuple[Any, ...]:
    """The function modes that are on in this thread. A device is in the arguments of what it is for: tapes tell."""
    modes = [internals.get_function_stack_at(i) for i in range(above, internals.len_torch_function_stack())]
    return tuple([mode for mode in modes if type(mode) is not internals.DeviceContext])


def names_of(modes: tuple[Any, ...]) -> str:
    """For a message."""
    return ", ".join(type(mode).__name__ for mode in modes)


def _values(settings: tuple[tuple[str, str], ...]) -> list[Any]:
    return [getattr(sys.modules.get(module), name, None) for module, name in settings]


@functools.cache
def _gathers(variable: contextvars.ContextVar[Any]) -> bool:
    """Is it a variable of a library that gathers outputs in it, by itself or inside an object of the library's?"""
    for name, module in list(sys.modules.items()):
        if name.startswith(_GATHERING) and type(getattr(module, "__dict__", None)) is dict:
            for held in list(vars(module).values()):
                inside = getattr(held, "__dict__", None) if type(held).__module__.startswith(_GATHERING) else None
                if held is variable or (type(inside) is dict and any(each is variable for each in inside.values())):
                    return True
    return False
