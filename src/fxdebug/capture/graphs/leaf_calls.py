"""Module calls as leaves while a body is traced.

The tracer answers a child's call from the tape, so a child's ``forward`` does not run. Hooks around the call are part
of how a model computes if they are torch's or transformers'. A user's own hooks mostly watch, and shall not see
placeholders: they run only where a body cannot be followed without them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from fxdebug.capture.graphs.symbolic_tracer import ModuleTracer
from fxdebug.capture.hooks import module_call
from fxdebug.capture.hooks.compiled_modules import CompiledWrapper, compiled_code_of, stand_in_front, step_aside
from fxdebug.capture.replay import side_effects
from fxdebug.capture.torch_state.whose_code import is_part_of

_TRUSTED_HOOKS = ("torch", "transformers")


class LeafCalls:
    """Observer of every module while bodies are traced: a call is a leaf of the body that is traced."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._tracer: ModuleTracer | None = None
        self._compiled: list[tuple[nn.Module, CompiledWrapper]] = []

    def begin(self, modules: list[nn.Module]) -> None:
        """Observe these modules until :meth:`end`."""
        module_call.begin(self)
        side_effects.begin(self)
        module_call.attach(self, modules)
        # the code that module.compile() made bypasses forward, and must not be compiled for placeholders
        way = self._past_compiled_code
        self._compiled = [(module, way) for module in modules if compiled_code_of(module) is not None]
        for module, _ in self._compiled:
            stand_in_front(module, way)

    def _past_compiled_code(self, module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
        return run if self._mine() is None else module._call_impl

    def end(self) -> None:
        """Stop observing."""
        for module, way in self._compiled:
            step_aside(module, way)
        self._compiled = []  # each way refers to this observer
        side_effects.end(self)
        module_call.end(self)

    @contextlib.contextmanager
    def of(self, tracer: ModuleTracer) -> Iterator[None]:
        """Inside the block, let this tracer answer the calls in this thread."""
        self._tracer = tracer
        try:
            yield
        finally:
            self._tracer = None

    def _mine(self) -> ModuleTracer | None:
        return self._tracer if threading.get_ident() == self._thread else None

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer the call from the tape instead of running the forward."""
        tracer = self._mine()
        return run(*args, **kwargs) if tracer is None else tracer.child(module, run, args, kwargs)

    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make the call with its hooks if all are trusted or the tracer wants them, and without them otherwise."""
        tracer = self._mine()
        if tracer is None or not _hooks(module):
            return run(*args, **kwargs)
        if tracer.with_hooks or not has_hooks_of_program(module):
            result = run(*args, **kwargs)
            tracer.returned(module, args, kwargs, result)
            return result
        return module.forward(*args, **kwargs)

    def wants(self, module: nn.Module) -> bool:
        """Is it a module that the traced body called?"""
        tracer = self._mine()
        return tracer is not None and tracer.knows(module)


def has_hooks_of_program(module: nn.Module) -> bool:
    """Do hooks run around calls of this module that are neither torch's nor transformers'?"""
    return not all(_is_trusted(hook) for hook in _hooks(module))


def _hooks(module: nn.Module) -> list[Any]:
    from torch.nn.modules import module as torch_module

    tables = (
        module._forward_hooks,
        module._forward_pre_hooks,
        torch_module._global_forward_hooks,
        torch_module._global_forward_pre_hooks,
    )
    return [hook for table in tables for hook in table.values()]


def _is_trusted(hook: Any) -> bool:
    home = getattr(hook, "__module__", None) or type(hook).__module__
    return is_part_of(str(home), *_TRUSTED_HOOKS)
