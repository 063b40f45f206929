"""Standing in front of ``forward`` while a run is on, and leaving no trace of it.

Each module instance of a model gets an instance attribute ``forward`` for the length of the run (a
hook would cost eight times as much and switch off fast paths). One wrapper per instance serves all
recordings that are on, in whatever order they begin and end; the last one to end takes it away.

``nn.Module._call_impl`` gets other code meanwhile: that is where modules show up that no parent has
registered, and where one sees what hooks made of inputs and outputs. The function stays the same
object, with the same file name: ``torch.compile`` takes a replaced one for a reason to trace it.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules import module as torch_module

_compiling = torch.compiler.is_dynamo_compiling


class Observer(Protocol):
    """A recording that is on: it is told of every call of the modules it covers, in every thread."""

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``run(*args, **kwargs)`` and return what it returns."""

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same around the whole ``module(...)``, hooks included, for modules that have hooks."""

    def meets(self, module: nn.Module) -> bool:
        """A module without a wrapper is about to run: does this recording want one on it?"""


class _Wrapped:
    """The wrapper on one module: what stood there before, and who is watching."""

    __slots__ = ("had_own", "method", "module", "observers", "original")

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.had_own = "forward" in module.__dict__
        self.original = module.forward
        self.observers: tuple[Observer, ...] = ()
        self.method = types.MethodType(_forward_of(self), module)


_lock = threading.RLock()
_table: dict[int, _Wrapped] = {}  # id(module) → wrapper; the wrapper keeps its module alive
_observers: tuple[Observer, ...] = ()


def _forward_of(wrapped: _Wrapped) -> Callable[..., Any]:
    """The function that stands in as ``module.forward``, bound to the module as a method is."""
    original, module = wrapped.original, wrapped.module

    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if self is not module:  # a deep copy made meanwhile took this along: it runs its own code
            function = getattr(original, "__func__", None)
            return original(*args, **kwargs) if function is None else function(self, *args, **kwargs)
        if _compiling():  # inside torch.compile: be as if not there
            return original(*args, **kwargs)
        observers = wrapped.observers
        if len(observers) == 1:
            return observers[0].call(module, original, args, kwargs)
        return _nested(observers, module, original)(*args, **kwargs)

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        value = getattr(original, name, None)
        if value is not None:
            setattr(forward, name, value)
    forward.__wrapped__ = getattr(original, "__func__", original)  # type: ignore[attr-defined]
    if not hasattr(original, "__func__"):  # a static forward, or a plain function set on the instance
        forward.__signature__ = _signature(original)  # type: ignore[attr-defined]
    return forward


def _signature(function: Callable[..., Any]) -> Any:
    """The signature of a function that takes no ``self``, with one in front for ``MethodType`` to remove."""
    import inspect

    try:
        own = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    receiver = inspect.Parameter("__module", inspect.Parameter.POSITIONAL_ONLY)
    return own.replace(parameters=[receiver, *own.parameters.values()])


def _nested(observers: tuple[Observer, ...], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    """The first observer outermost: a recording begun inside another one is seen by it as part of the run."""
    for observer in reversed(observers):
        run = _around(observer.call, module, run)
    return run


def _around(call: Callable[..., Any], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: call(module, run, args, kwargs)


def _call_impl(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # this code runs with torch's globals
    if __fxdebug_compiling__():  # type: ignore[name-defined]  # noqa: F821
        return __fxdebug_original__(self, *args, **kwargs)  # type: ignore[name-defined]  # noqa: F821
    return __fxdebug_seen__(self, args, kwargs)  # type: ignore[name-defined]  # noqa: F821


def _seen(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Every ``module(...)`` passes here while a recording is on."""
    if id(self) in _table and not (
        self._forward_hooks
        or self._forward_pre_hooks
        or self._backward_hooks
        or self._backward_pre_hooks
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
    ):
        return _original_call_impl(self, *args, **kwargs)
    if _frames.get_eval_frame_callback() is not None:  # a compiled region: no Python of ours may run in it
        return _original_call_impl(self, *args, **kwargs)
    return _watched(self, args, kwargs)


def _watched(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    adopted = id(self) not in _table and _adopt(self)
    run: Callable[..., Any] = types.MethodType(_original_call_impl, self)
    for observer in reversed(_observers):
        run = _around(observer.outer, self, run)
    try:
        return run(*args, **kwargs)
    finally:
        if adopted:
            _release(self)


_class_call_impl = nn.Module._call_impl
_torch_code = _class_call_impl.__code__
_our_code = _call_impl.__code__.replace(co_filename=_torch_code.co_filename)
_original_call_impl = types.FunctionType(_torch_code, torch_module.__dict__, "_call_impl")
_names = {"__fxdebug_compiling__": _compiling, "__fxdebug_original__": _original_call_impl, "__fxdebug_seen__": _seen}
_frames = torch._C._dynamo.eval_frame
_frames.set_code_exec_strategy(  # dynamo looks at each frame in a compiled region: not at this one
    _seen.__code__, _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT)
)


def _adopt(module: nn.Module) -> bool:
    """Watch a module nobody registered, for one call: the wrapper would keep it alive otherwise."""
    interested = [observer for observer in _observers if observer.meets(module)]
    for observer in interested:
        watch(observer, (module,))
    return bool(interested)


def _release(module: nn.Module) -> None:
    with _lock:
        wrapped = _table.pop(id(module), None)
        if wrapped is not None:
            _unwrap(wrapped)


def watch(observer: Observer, modules: Iterable[nn.Module]) -> None:
    """Put ``observer`` on each of the modules; modules that cannot carry a wrapper are left alone."""
    with _lock:
        for module in modules:
            wrapped = _table.get(id(module))
            if wrapped is None:
                try:
                    wrapped = _Wrapped(module)
                except AttributeError:
                    continue  # no forward at all (a container such as ModuleList has one that raises; that is fine)
                module.__dict__["forward"] = wrapped.method
                _table[id(module)] = wrapped
            if observer not in wrapped.observers:
                wrapped.observers = (*wrapped.observers, observer)


def begin(observer: Observer) -> None:
    """Tell ``observer`` of modules and hooks met from now on; the first one changes ``_call_impl``'s code."""
    global _observers
    with _lock:
        if not _observers:
            torch_module.__dict__.update(_names)
            _class_call_impl.__code__ = _our_code
        _observers = (*_observers, observer)


def end(observer: Observer) -> None:
    """Take ``observer`` off every module; what nobody watches any more is as it was before."""
    global _observers
    with _lock:
        for key, wrapped in list(_table.items()):
            if observer in wrapped.observers:
                wrapped.observers = tuple(other for other in wrapped.observers if other is not observer)
                if not wrapped.observers:
                    _unwrap(wrapped)
                    del _table[key]
        _observers = tuple(other for other in _observers if other is not observer)
        if not _observers and _class_call_impl.__code__ is _our_code:
            _class_call_impl.__code__ = _torch_code
            for name in _names:
                torch_module.__dict__.pop(name, None)


def _unwrap(wrapped: _Wrapped) -> None:
    own = wrapped.module.__dict__
    if own.get("forward") is not wrapped.method:
        return  # the program put something of its own there meanwhile: that stays
    if wrapped.had_own:
        own["forward"] = wrapped.original
    else:
        del own["forward"]
