"""Modules that ``torch.compile`` compiled: observe them without changing the kernels that run.

A wrapper inside a compiled region would break its graph and force a recompilation, and the new fused kernels may differ
in the last bit. So a compiled region stays closed: it is recorded as one call. The backend ``eager`` compiles nothing;
its regions run as plain Python during the run, with the same arithmetic, and everything inside is recorded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from torch import nn

from fxdebug.capture.hooks.observers import Observer
from fxdebug.capture.hooks.patch import OwnAttribute, Patch, SharedPatch
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.capture.torch_state.whose_code import is_part_of

Run = Callable[..., Any]
CompiledWrapper = Callable[[nn.Module, Run], Run]
"""Returns the function to call instead of a module's compiled code, given both."""


# In front of compiled code -----------------------------------------------------------------------


class _Front(SharedPatch):
    """The patch of a module's compiled code; its users are each a :data:`CompiledWrapper`, the first one innermost."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(lock=_lock)
        self.module = module
        self.compiled = module.__dict__["forward" if _is_optimized(module) else "_compiled_call_impl"]

    def places(self) -> tuple[Patch, ...]:
        """Return the places to patch now."""
        own = self.module.__dict__
        if _is_optimized(self.module):
            return (OwnAttribute("<OptimizedModule>.forward", own, "forward", self.module._orig_mod),)
        return (OwnAttribute("<module>._compiled_call_impl", own, "_compiled_call_impl", self._instead()),)

    @uncounted
    def _instead(self) -> Run:
        def instead(*args: Any, **kwargs: Any) -> Any:
            run = self.compiled
            for way in self.users:
                run = way(self.module, run)
            return run(*args, **kwargs)

        instead.__dict__.update(__fxdebug__=True, __wrapped__=self.compiled)  # marks its closure as ours
        return instead


_lock = threading.RLock()
_fronts: dict[int, _Front] = {}  # id(module) → wrapper; it keeps its module alive


def stand_in_front(module: nn.Module, way: CompiledWrapper) -> None:
    """Run ``way`` around a module's compiled code, until :func:`step_aside`."""
    with _lock:
        front = _fronts.get(id(module))
        if front is None:
            front = _fronts[id(module)] = _Front(module)
        front.begin(way)


def step_aside(module: nn.Module, way: CompiledWrapper) -> None:
    """Stop running ``way``; the last one to stop restores the compiled code. A second call does no harm."""
    with _lock:
        front = _fronts.get(id(module))
        if front is not None and front.module is module:
            front.end(way)
            if not front.users:
                del _fronts[id(module)]


def compiled_code_of(module: nn.Module) -> Any:
    """Return the code that ``module.compile()`` made, without our wrapper; ``None`` where there is none."""
    code = module.__dict__.get("_compiled_call_impl")
    return code.__wrapped__ if "__fxdebug__" in getattr(code, "__dict__", ()) else code


# The compiled modules of a model -----------------------------------------------------------------


@dataclass
class Compiled:
    """The compiled modules of a model: ``closed`` ones stay shut, ``open`` ones are run uncompiled.

    Of ``forwards`` only ``forward`` was compiled, by a decorator or an assignment: they are called as others are.
    """

    closed: list[nn.Module] = field(default_factory=list)
    open: list[nn.Module] = field(default_factory=list)
    forwards: list[nn.Module] = field(default_factory=list)  # closed as well: only the forward was compiled
    _changed: list[tuple[nn.Module, CompiledWrapper]] = field(default_factory=list)

    def hidden(self) -> set[int]:
        """Return the ids of the modules whose ``forward`` runs inside a closed region."""
        inside = {id(inner) for outer in self.closed for inner in modules_of(outer) if inner is not outer}
        return inside | {id(outer) for outer in self.closed if not _is_optimized(outer)}

    def begin(self, observer: Observer) -> None:
        """Run the open modules uncompiled and show calls of the closed ones to ``observer``, until :meth:`end`.

        Code compiled by ``module.compile()`` bypasses ``forward``, so it gets a wrapper of its own.
        """
        self._open(self.open)
        for module in self.closed:
            if not _is_optimized(module):
                self._change(module, _recorded(observer))

    def open_all(self) -> None:
        """Run all compiled modules uncompiled, until :meth:`end`."""
        self._open([*self.open, *self.closed])

    def _open(self, modules: list[nn.Module]) -> None:
        for module in modules:
            self._change(module, _uncompiled())

    def end(self) -> None:
        """Restore the compiled code of every module."""
        while self._changed:
            step_aside(*self._changed[-1])
            self._changed.pop()

    def _change(self, module: nn.Module, way: CompiledWrapper) -> None:
        self._changed.append((module, way))
        stand_in_front(module, way)


def _uncompiled() -> CompiledWrapper:
    return lambda module, run: module._call_impl


@uncounted
def _recorded(observer: Observer) -> CompiledWrapper:
    return lambda module, run: lambda *args, **kwargs: observer.around_forward(module, run, args, kwargs)


def compiled_in(modules: Sequence[nn.Module]) -> Compiled:
    """Return the compiled modules among the modules of a model, outermost first."""
    compiled = Compiled()
    if internals.OPTIMIZED not in sys.modules:
        return compiled
    candidates = [m for m in modules if "_compiled_call_impl" in m.__dict__ or _is_optimized(m)]
    for module in candidates:
        callback = _callback(module)
        if callback is not None:
            (compiled.open if _is_eager(callback) else compiled.closed).append(module)
    others = [module for module in modules if not any(module is candidate for candidate in candidates)]
    compiled.forwards = [module for module in others if _has_compiled_forward(module)]
    return compiled


def _has_compiled_forward(module: nn.Module) -> bool:
    places = (module, *type(module).__mro__)  # not ``getattr``: a scripted module has a descriptor of its own
    forward = next((place.__dict__["forward"] for place in places if "forward" in place.__dict__), None)
    if type(forward) is FunctionType and "__fxdebug__" in forward.__dict__:  # of another recording that is on
        forward = forward.__dict__["__wrapped__"]
    return (
        type(forward) is FunctionType
        and "_torchdynamo_orig_callable" in forward.__dict__
        and "_torchdynamo_disable" not in forward.__dict__
    )


def _is_optimized(module: nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" and is_part_of(type(module).__module__, internals.OPTIMIZED)


def _callback(module: nn.Module) -> Any:
    """Return dynamo's callback for a compiled module; ``None`` for a module that is not compiled."""
    if _is_optimized(module):
        return module.dynamo_ctx.callback
    implementation = compiled_code_of(module)
    return None if implementation is None else _closed_over(implementation, "callback")


def _closed_over(function: Any, name: str) -> Any:
    """Return a variable of a function's closure, or the function itself if it has no such variable."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for free, cell in zip(code.co_freevars if code else (), cells):
        if free == name:
            return cell.cell_contents
    return function


def _is_eager(callback: Any) -> bool:
    backends = [getattr(link, "compiler_fn", link) for link in _chain(callback)]
    return any(
        getattr(backend, "__module__", "") == internals.COMPILES_NOTHING and getattr(backend, "__name__", "") == "eager"
        for backend in backends
    )


def _chain(callback: Any) -> Iterator[Any]:
    for _ in range(8):  # callbacks wrap one another, the backend innermost
        yield callback
        inner = next(
            (found for name in internals.WRAPPED if (found := getattr(callback, name, None)) is not None), None
        )
        if inner is None:
            return
        callback = inner
