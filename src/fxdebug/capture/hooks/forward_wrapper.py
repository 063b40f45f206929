"""The wrapper that stands in front of a module's `forward`, and copies of modules made meanwhile."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

from torch import nn

from fxdebug.capture.hooks.nested_observers import nested
from fxdebug.capture.hooks.observers import Observer, visible_in_thread, visible_to
from fxdebug.capture.hooks.patch import OwnAttribute, SharedPatch
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch


class Wrapped(SharedPatch):
    """The wrapper on one module: what stood there before, and who is watching (``users``)."""

    bypassed = False  # has the program put another forward in our place?
    visitors: tuple[Observer, ...] = ()  # those of them that watch while a call is on, no longer
    visits = 0  # such calls that are on

    def __init__(self, module: nn.Module, functions: Functions) -> None:
        if "forward" in module.__dict__:
            clean(module)
        self.module = module
        self.had_own = "forward" in module.__dict__
        self.found = None if self.had_own else getattr(type(module), "forward", None)
        self.original = original = module.forward
        if type(original) is types.MethodType and original.__func__ is self.found:
            function = functions.get(self.found)
            if function is None:
                function = functions[self.found] = _function_for(self.found, of_class=True)
        else:
            function = _function_for(original)
        self.method = types.MethodType(function, module)
        super().__init__(OwnAttribute("<module>.forward", module.__dict__, "forward", self.method), lock=lock)


lock = threading.RLock()
table: dict[int, Wrapped] = {}  # id(module) → wrapper; the wrapper keeps its module alive

Functions = dict[Any, Callable[..., Any]]  # a class's forward → the function that stands in for it


def _function_for(original: Callable[..., Any], of_class: bool = False) -> Callable[..., Any]:
    """The function that stands in as ``module.forward``, bound to its module as a method is.

    One for all modules with a forward ``of_class``, or one for a module that has its own.
    """
    function = original if of_class else getattr(original, "__func__", None)  # not bound: it keeps no module alive

    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        wrapped = table.get(id(self))
        if wrapped is None or wrapped.method.__func__ is not forward:  # a deep copy made meanwhile: it runs its own
            return original(*args, **kwargs) if function is None else function(self, *args, **kwargs)
        run, found = wrapped.original, wrapped.found
        if found is not None and getattr(type(self), "forward", None) is not found:
            run = _of_class(self)  # the class was patched meanwhile
        if is_traced_by_torch() or (wrapped.bypassed and _whole.modules[-1:] == (self,)):
            return run(*args, **kwargs)  # traced by torch itself, or recorded already: be as if not there
        observers = visible_to(wrapped.users) if visible_in_thread else wrapped.users
        if len(observers) == 1:
            return observers[0].call(self, run, args, kwargs)
        return nested(observers, self, run)(*args, **kwargs)

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        value = getattr(original, name, None)
        if value is not None:
            setattr(forward, name, value)
    forward.__wrapped__ = original if function is None else function  # type: ignore[attr-defined]
    forward.__fxdebug__ = True  # type: ignore[attr-defined]
    if function is None:  # a static forward, or a plain function set on the instance
        forward.__signature__ = _signature(original)  # type: ignore[attr-defined]
    return forward


def _of_class(module: nn.Module) -> Callable[..., Any]:
    """The forward that a module has from its class, bound."""
    for base in type(module).__mro__:
        if "forward" in base.__dict__:
            found = base.__dict__["forward"]
            bound: Callable[..., Any] = found.__get__(module, type(module)) if hasattr(found, "__get__") else found
            return bound
    raise AttributeError(f"{type(module).__name__!r} object has no attribute 'forward'")


def _signature(function: Callable[..., Any]) -> Any:
    """The signature of a function that takes no ``self``, with one in front for ``MethodType`` to remove."""
    import inspect

    try:
        own = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    receiver = inspect.Parameter("__module", inspect.Parameter.POSITIONAL_ONLY)
    return own.replace(parameters=[receiver, *own.parameters.values()])


# Copies made meanwhile ---------------------------------------------------------------------------


def _stands_in(method: Any) -> bool:
    """Is this one of our methods?"""
    return type(method) is types.MethodType and hasattr(method.__func__, "__fxdebug__")


def _as_it_was(state: Any) -> Any:
    """The state of a module without our wrapper in it: what ``copy`` and ``pickle`` are to see."""
    if isinstance(state, tuple):  # of a class with slots: (attributes, slots)
        return tuple([_as_it_was(part) for part in state])
    method: Any = state.get("forward") if isinstance(state, dict) else None
    if not _stands_in(method):
        return state
    wrapped = table.get(id(method.__self__))
    own = {"forward": wrapped.original} if wrapped is not None and wrapped.had_own else {}
    return {name: content for name, content in state.items() if name != "forward"} | own


def reduce_ex(self: nn.Module, protocol: Any) -> Any:
    reduced = _original_reduce_ex(self, protocol)
    if isinstance(reduced, tuple) and len(reduced) > 2:
        return (*reduced[:2], _as_it_was(reduced[2]), *reduced[3:])
    return reduced


def clean(module: nn.Module) -> None:
    """Take another module's wrapper out of a copy of its ``__dict__`` (``DataParallel`` makes such replicas)."""
    method = module.__dict__.get("forward")
    if method is not None and _stands_in(method) and method.__self__ is not module:
        module.__dict__.pop("forward")
        wrapped = table.get(id(method.__self__))
        if wrapped is not None and wrapped.had_own:
            module.__dict__["forward"] = wrapped.original


_original_reduce_ex = nn.Module.__reduce_ex__


# Modules whose forward we are not in front of: the whole call is recorded in its stead -------------


class _Whole(threading.local):
    """The modules that this thread is calling in this way, outermost first."""

    modules: tuple[nn.Module, ...] = ()


_whole = _Whole()


def as_a_whole(module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    def whole(*args: Any, **kwargs: Any) -> Any:
        before = _whole.modules
        _whole.modules = (*before, module)
        try:
            return run(*args, **kwargs)
        finally:
            _whole.modules = before

    return whole
