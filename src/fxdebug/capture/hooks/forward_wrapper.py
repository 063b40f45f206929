"""The wrapper in front of a module's ``forward``: the place where every call of it enters and leaves a recording.

Reading order: after ``runs/attach``, which puts the wrappers on; then ``recorder/recorder``, which a call enters.

Each module instance gets an instance attribute ``forward`` (:class:`ForwardWrapper`) that passes the call to the
observers. A module that is copied or pickled during a run is copied without it.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fxdebug.capture.hooks.observers import Observer, nested, visible_in_thread, visible_to
from fxdebug.capture.hooks.patch import INHERITED, Attribute, OwnAttribute, SharedPatch
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.native import dispatch
from fxdebug.stats.accelerator import captures_graph


class ForwardWrapper(SharedPatch):
    """The wrapper on one module: the forward that was there before, and its observers (``users``)."""

    bypassed = False  # has the program put another forward in our place?
    temporary: tuple[Observer, ...] = ()  # observers that are attached only for the length of a call of the module
    temporary_calls = 0  # how many such calls are running

    def __init__(self, module: nn.Module, functions: Functions) -> None:
        if "forward" in module.__dict__:
            remove_copied_wrapper(module)
        self.module = module
        self.had_instance_forward = "forward" in module.__dict__
        self.of_class = None if self.had_instance_forward else getattr(type(module), "forward", None)
        self.original = original = module.forward
        if type(original) is types.MethodType and original.__func__ is self.of_class:
            key = self.of_class, dispatch.core()
            function = functions.get(key)
            if function is None:
                function = functions[key] = _function_for(self.of_class, is_of_class=True)
        else:
            function = _function_for(original)
        self.method = types.MethodType(function, module)
        super().__init__(OwnAttribute("<module>.forward", module.__dict__, "forward", self.method), lock=lock)


lock = threading.RLock()
wrappers: dict[int, ForwardWrapper] = {}  # id(module) → wrapper; the wrapper keeps its module alive

Functions = dict[Any, Callable[..., Any]]  # a class's forward, the core in use → the function that stands in for it
ELSEWHERE = object()  # the native core's answer where a call is to be recorded here


def core_parts() -> tuple[Any, ...]:
    """Return what the native core needs to find the recording of a call."""
    return wrappers, visible_in_thread, torch.compiler, ELSEWHERE


@uncounted
def _function_for(original: Callable[..., Any], is_of_class: bool = False) -> Callable[..., Any]:
    """Return the function that replaces ``module.forward`` once it is bound to the module, as a method is.

    All modules that take their forward from one class share a function; a module with a forward of its own has its own.
    """
    function = original if is_of_class else getattr(original, "__func__", None)  # not bound: it keeps no module alive

    core = dispatch.core()
    pass_on = None if core is None else core.pass_on(*core_parts())

    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if pass_on is not None and not torch.compiler.is_dynamo_compiling() and not captures_graph():
            output = pass_on(self, forward, args, kwargs)
            if output is not ELSEWHERE:
                return output
        wrapper = wrappers.get(id(self))
        if wrapper is None or wrapper.method.__func__ is not forward:  # a deep copy made during a run
            return original(*args, **kwargs) if function is None else function(self, *args, **kwargs)
        run, of_class = wrapper.original, wrapper.of_class
        if of_class is not None and getattr(type(self), "forward", None) is not of_class:
            run = _class_forward(self)  # the program has patched the class since
        if is_traced_by_torch() or (wrapper.bypassed and _whole_calls.is_innermost(self)):
            return run(*args, **kwargs)  # torch is tracing it, or it is recorded already: just pass the call on
        observers = visible_to(wrapper.users) if visible_in_thread else wrapper.users
        if len(observers) == 1:
            return observers[0].around_forward(self, run, args, kwargs)
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


# Every call of a wrapped forward passes through this code; so does an exception that leaves one.
WRAPPER_CODE = next(
    code for code in _function_for.__code__.co_consts if isinstance(code, types.CodeType) and code.co_name == "forward"
)


def _class_forward(module: nn.Module) -> Callable[..., Any]:
    """Return the forward of a module's class, bound to the module."""
    for base in type(module).__mro__:
        if "forward" in base.__dict__:
            found = base.__dict__["forward"]
            bound: Callable[..., Any] = found.__get__(module, type(module)) if hasattr(found, "__get__") else found
            return bound
    raise AttributeError(f"{type(module).__name__!r} object has no attribute 'forward'")


def _signature(function: Callable[..., Any]) -> Any:
    """Return the signature of a function that has no ``self``, with a first parameter for ``MethodType`` to drop."""
    import inspect

    try:
        own = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    receiver = inspect.Parameter("__module", inspect.Parameter.POSITIONAL_ONLY)
    return own.replace(parameters=[receiver, *own.parameters.values()])


# Copies made during a run ------------------------------------------------------------------------


def _is_ours(method: Any) -> bool:
    """Is this method one of our wrappers?"""
    return type(method) is types.MethodType and hasattr(method.__func__, "__fxdebug__")


class InFront:
    """A callable of ours in a module's ``__dict__``; ``original`` is what was there, ``INHERITED`` for nothing."""

    original: Any = INHERITED


def _before_ours(content: Any) -> Any:
    """Return what a module had under a name before ours, ``INHERITED`` for nothing; content of the program's stays."""
    while True:
        if _is_ours(content):
            wrapper = wrappers.get(id(content.__self__))
            content = wrapper.original if wrapper is not None and wrapper.had_instance_forward else INHERITED
        elif issubclass(type(content), InFront):
            content = content.original
        else:
            return content


def _without_ours(state: Any) -> Any:
    """Return the state of a module without anything of ours, for ``copy`` and ``pickle``."""
    if isinstance(state, tuple):  # the state of a class with slots: (attributes, slots)
        return tuple([_without_ours(part) for part in state])
    if not isinstance(state, dict):
        return state
    before = {name: _before_ours(content) for name, content in state.items()}
    if all(before[name] is content for name, content in state.items()):
        return state
    return {name: content for name, content in before.items() if content is not INHERITED}


def _reduce_ex(self: nn.Module, protocol: Any) -> Any:
    """Reduce a module as if it had no wrapper: the replacement of ``nn.Module.__reduce_ex__``."""
    reduced = _original_reduce_ex(self, protocol)
    if isinstance(reduced, tuple) and len(reduced) > 2:
        return (*reduced[:2], _without_ours(reduced[2]), *reduced[3:])
    return reduced


def remove_copied_wrapper(module: nn.Module) -> None:
    """Remove the wrapper that a module got with a copy of another module's ``__dict__``, as replicas do."""
    method = module.__dict__.get("forward")
    if method is not None and _is_ours(method) and method.__self__ is not module:
        module.__dict__.pop("forward")
        wrapper = wrappers.get(id(method.__self__))
        if wrapper is not None and wrapper.had_instance_forward:
            module.__dict__["forward"] = wrapper.original


_original_reduce_ex = nn.Module.__reduce_ex__
copies = SharedPatch(  # its users are all that put something into a module's ``__dict__``
    Attribute("torch.nn.Module.__reduce_ex__", nn.Module, "__reduce_ex__", lambda original: _reduce_ex), lock=lock
)


# Modules whose forward cannot be wrapped: the whole call is recorded instead ------------------------


class _WholeCalls(threading.local):
    """Modules whose whole call this thread records, outermost first."""

    modules: tuple[nn.Module, ...] = ()

    def is_innermost(self, module: nn.Module) -> bool:
        """Is the innermost one this module? Two that compare equal are still two."""
        return bool(self.modules) and self.modules[-1] is module


_whole_calls = _WholeCalls()


@uncounted
def recorded_whole(module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``run``, the whole call of a module, with the module's own wrapper silent while it runs.

    The program has bypassed that wrapper, but may still call it from the forward that it put in its place.
    """

    def whole(*args: Any, **kwargs: Any) -> Any:
        before = _whole_calls.modules
        _whole_calls.modules = (*before, module)
        try:
            return run(*args, **kwargs)
        finally:
            _whole_calls.modules = before

    return whole
