"""Modes, settings, context variables and the environment: they decide what calls compute and are in no graph.

A body may set any of them around an operation or a call and restore it afterwards. The random state is watched by
``rng``, attributes and objects by ``snapshot``. Setting anything else of torch is refused (``global_settings``).
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
from fxdebug.capture.reasons import CannotTrace, ReasonText
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.whose_code import is_part_of

# Settings that are variables of torch's Python code. Each is compared where it matters.
_EINSUM = (("torch.backends.opt_einsum", "enabled"), ("torch.backends.opt_einsum", "strategy"))
_CALLS = (
    *_EINSUM,
    ("torch.backends.mha", "_is_fastpath_enabled"),
    ("torch.nn.utils.parametrize", "_cache_enabled"),
)


# Modes of these libraries only watch operations. Ours is on while a body is traced.
_WATCHING = ("torch.utils.checkpoint", "torch.utils.flop_counter", "fxdebug")


# Context variables of these libraries collect outputs and decide nothing.
_COLLECTING = ("torch", "transformers")


class AmbientState:
    """Ambient state when a body begins, compared at each operation and each call of that body.

    ``is_changed_for(module)`` says whether a call of this module would find other attributes or objects than before
    the trace. ``change_around_call`` names the first change that was in effect when the body called a module; it is
    the reason why the graph is not reusable.
    """

    def __init__(self, is_changed_for: Callable[[nn.Module], bool]) -> None:
        self.change_around_call: ReasonText | None = None
        self._is_changed_for = is_changed_for

    def begin(self) -> None:
        """Note the present state: the body begins, and the mode that traces it is on."""
        self._function_modes = function_modes()
        self._dispatch_modes = dispatch_modes()
        self._einsum = _values(_EINSUM)
        self._kernels = internals.attention_kernels()
        self._calls = _values(_CALLS)
        self._environment = environment()
        self._variables = contextvars.copy_context()

    def check_operation(self, function: Any = None) -> None:
        """Compare when the body calls a torch function. Raises ``CannotTrace`` if it may compute something else."""
        if internals.len_torch_dispatch_stack() or self._dispatch_modes:
            modes = dispatch_modes()
            if modes != self._dispatch_modes:
                raise CannotTrace(reasons.OWN_MODE(modes=names_of_modes(modes) or "none"))
        if function is torch.functional.einsum and _values(_EINSUM) != self._einsum:
            raise CannotTrace(reasons.CHANGES_TORCH_SETTING(name="opt_einsum"))

    def kernels_for(self, noted: internals.AttentionKernels | None, function: Any) -> internals.AttentionKernels | None:
        """Return the kernels that the body itself sets for an operation; ``None`` if it leaves them as they are.

        Raises ``CannotTrace`` where the operation ran with others, or may depend on them and the tape does not say so.
        """
        kernels = internals.attention_kernels()
        if kernels == self._kernels:
            return None
        home = getattr(function, "__module__", None)
        if kernels != noted and (noted is not None or not (home is None or is_part_of(home, "torch"))):
            raise CannotTrace(reasons.CHANGES_TORCH_SETTING(name="sdpa_kernel"))
        return kernels if noted is not None else None

    def check_call(self, module: nn.Module) -> None:
        """Compare when the body calls a module, and note the first change: a graph would call it without the change."""
        self.check_operation()
        if internals.attention_kernels() != self._kernels:
            raise CannotTrace(reasons.CHANGES_TORCH_SETTING(name="sdpa_kernel"))
        if not self.change_around_call:
            self.change_around_call = self._change()
        if not self.change_around_call and self._is_changed_for(module):
            self.change_around_call = reasons.CHANGES_AROUND_CALL()

    def _change(self) -> ReasonText | None:
        """Return the first difference from when the body began; ``None`` if there is none."""
        modes = function_modes()
        if modes != self._function_modes:
            return reasons.MODE_AROUND_CALL(modes=names_of_modes(modes[len(self._function_modes) :]))
        if _values(_CALLS) != self._calls:
            return reasons.SETTING_AROUND_CALL()
        if environment() != self._environment:
            return reasons.ENVIRONMENT_AROUND_CALL()
        variable = next(self._changed_variables(), None)
        return None if variable is None else reasons.VARIABLE_AROUND_CALL(name=variable.name)

    def _changed_variables(self) -> Iterator[contextvars.ContextVar[Any]]:
        now, before = contextvars.copy_context(), self._variables
        for variable in {**now, **before}:
            if now.get(variable, _UNSET) is not before.get(variable, _UNSET) and not _only_collects(variable):
                yield variable


_UNSET = object()


def environment() -> dict[Any, Any]:
    """Return the variables of the environment as Python stores them: decoding takes a while."""
    return dict(getattr(os.environ, "_data", os.environ))


def dispatch_modes() -> tuple[Any, ...]:
    """Return the dispatch modes of this thread that may change what an operation computes."""
    count = internals.len_torch_dispatch_stack()
    if not count:
        return ()
    modes = [internals.get_dispatch_stack_at(i) for i in range(count)]
    return tuple([mode for mode in modes if not is_part_of(type(mode).__module__, *_WATCHING)])


def function_modes(start: int = 0) -> tuple[Any, ...]:
    """Return the function modes of this thread, from a position on its stack upwards.

    ``with torch.device(...)`` is left out: tapes have the device among the arguments.
    """
    modes = [internals.get_function_stack_at(i) for i in range(start, internals.len_torch_function_stack())]
    return tuple([mode for mode in modes if type(mode) is not internals.DeviceContext])


def names_of_modes(modes: tuple[Any, ...]) -> str:
    """Return the names of the classes of modes, for a message."""
    return ", ".join(type(mode).__name__ for mode in modes)


def _values(settings: tuple[tuple[str, str], ...]) -> list[Any]:
    return [getattr(sys.modules.get(module), name, None) for module, name in settings]


@functools.cache
def _only_collects(variable: contextvars.ContextVar[Any]) -> bool:
    """Does a library of ``_COLLECTING`` have this variable, as a global or as an attribute of one of its objects?"""
    for name, module in list(sys.modules.items()):
        if is_part_of(name, *_COLLECTING) and type(getattr(module, "__dict__", None)) is dict:
            for content in list(vars(module).values()):
                is_of_library = is_part_of(type(content).__module__, *_COLLECTING)
                attributes = getattr(content, "__dict__", None) if is_of_library else None
                if content is variable:
                    return True
                if type(attributes) is dict and any(each is variable for each in attributes.values()):
                    return True
    return False
