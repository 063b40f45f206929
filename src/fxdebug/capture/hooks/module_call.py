"""Standing in front of ``forward`` while a run is on, and leaving no trace of it.

Each module instance of a model gets an instance attribute ``forward`` for the length of the run (a
hook would cost eight times as much and switch off fast paths). One wrapper per instance serves all
recordings that are on, in whatever order they begin and end; the last one to end takes it away.

``nn.Module._call_impl`` gets other code meanwhile: that is where modules show up that no parent has
registered, and where one sees what hooks made of inputs and outputs. The function stays the same
object, with the same file name: ``torch.compile`` takes a replaced one for a reason to trace it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from fxdebug.capture.hooks.forward_wrapper import Functions, Wrapped, as_a_whole, clean, lock, reduce_ex, table
from fxdebug.capture.hooks.nested_observers import around, nested
from fxdebug.capture.hooks.observers import Observer, visible_again, visible_to
from fxdebug.capture.hooks.patch import Attribute, Setting, SharedPatch
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.mode_stack import is_traced

_compiling = torch.compiler.is_dynamo_compiling


def _call_impl(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # this code runs with torch's globals
    from fxdebug.capture.hooks.module_call import _compiling, _original_call_impl, _seen

    if _compiling():
        return _original_call_impl(self, *args, **kwargs)
    return _seen(self, args, kwargs)


def _seen(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Every ``module(...)`` passes here while a recording is on."""
    wrapped = table.get(id(self))
    if (
        wrapped is not None
        and self.__dict__.get("forward") is wrapped.method
        and len(wrapped.users) - len(wrapped.visitors) == len(_calls.users)
        and not (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or torch_module._global_forward_hooks
            or torch_module._global_forward_pre_hooks
            or torch_module._global_backward_hooks
            or torch_module._global_backward_pre_hooks
        )
    ):
        return _original_call_impl(self, *args, **kwargs)
    if internals.eval_frame_callback() is not None or is_traced():  # no Python of ours may run in what torch compiles
        return _original_call_impl(self, *args, **kwargs)
    return _watched(self, args, kwargs)


def _watched(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    new, visited = _visit(self)
    run: Callable[..., Any] = types.MethodType(_original_call_impl, self)
    unmet = _unmet(self, new)
    if unmet:
        run = nested(unmet, self, as_a_whole(self, run))
    for observer in reversed(visible_to(_calls.users)):
        run = around(observer.outer, self, run)
    try:
        return run(*args, **kwargs)
    finally:
        if visited is not None:
            _end_visit(visited)


def _unmet(module: nn.Module, new: tuple[Observer, ...]) -> tuple[Observer, ...]:
    """Who would not hear of a call: it carries no wrapper, or the program has put another forward there."""
    wrapped = table.get(id(module))
    if wrapped is None:
        return new
    if module.__dict__.get("forward") is wrapped.method:
        return ()
    wrapped.bypassed = True
    return visible_to(wrapped.users)


_class_call_impl = nn.Module._call_impl
_torch_code = _class_call_impl.__code__
_our_code = _call_impl.__code__.replace(co_filename=_torch_code.co_filename)
_original_call_impl = types.FunctionType(_torch_code, torch_module.__dict__, "_call_impl")
internals.keep_dynamo_off(_seen.__code__)  # dynamo looks at each frame in a compiled region: not at this one


def _put_code(code: types.CodeType) -> None:
    _class_call_impl.__code__ = code  # of the same function: see above


_calls = SharedPatch(  # its users are all observers, in the order in which they began
    Setting(
        "torch.nn.Module._call_impl.__code__", lambda: _class_call_impl.__code__, _put_code, lambda found: _our_code
    ),
    Attribute("torch.nn.Module.__reduce_ex__", nn.Module, "__reduce_ex__", lambda found: reduce_ex),
    lock=lock,
)


def stands_in(code: types.CodeType) -> bool:
    """Is this the code that ``_call_impl`` has meanwhile? It bears the name of torch's file, with our lines."""
    return code is _our_code


def _visit(module: nn.Module) -> tuple[tuple[Observer, ...], Wrapped | None]:
    """Put those on a module that want to watch it though nobody registered it with them.

    They stay while a call of it is on, no longer: a wrapper keeps its module alive. Returns who they
    are, and what to give to :func:`_end_visit`.
    """
    wrapped = table.get(id(module))
    if wrapped is None:
        clean(module)
    watching = () if wrapped is None else wrapped.users
    new = tuple(
        [observer for observer in visible_to(_calls.users) if observer not in watching and observer.meets(module)]
    )
    with lock:
        for observer in new:
            watch(observer, (module,))
        wrapped = table.get(id(module))
        if wrapped is None or not (new or wrapped.visitors):
            return new, None
        wrapped.visits += 1
        wrapped.visitors = (*wrapped.visitors, *[observer for observer in new if observer not in wrapped.visitors])
    return new, wrapped


def _end_visit(wrapped: Wrapped) -> None:
    with lock:
        wrapped.visits -= 1
        if not wrapped.visits:
            visitors, wrapped.visitors = wrapped.visitors, ()
            for observer in visitors:
                if table.get(id(wrapped.module)) is wrapped:
                    _leave(observer, (id(wrapped.module),))


def watch(observer: Observer, modules: Iterable[nn.Module], functions: Functions | None = None) -> None:
    """Put ``observer`` on each of the modules; modules that cannot carry a wrapper are left alone.

    ``functions``: what stood in for the forwards of these modules' classes the last time, to be used again.
    """
    functions = {} if functions is None else functions
    computed: dict[type, bool] = {}
    with lock:
        for module in modules:
            wrapped = table.get(id(module))
            if wrapped is None:
                kind = type(module)
                if kind not in computed:
                    computed[kind] = _is_computed(kind)
                if computed[kind]:
                    continue
                try:
                    wrapped = table[id(module)] = Wrapped(module, functions)
                except Exception:  # no forward at all, or one that cannot be looked at
                    continue
                wrapped.begin(observer)
            elif observer not in wrapped.users:
                wrapped.begin(observer)
                together = wrapped.users
                wrapped.users = tuple([other for other in _calls.users if other in together])


def _is_computed(kind: type) -> bool:
    """Is ``forward`` a property of this class? It wins over an instance attribute: no wrapper would be met."""
    for base in kind.__mro__:
        if "forward" in base.__dict__:
            return hasattr(base.__dict__["forward"], "__set__")
    return False


def _leave(observer: Observer, keys: Iterable[int]) -> None:
    """Take ``observer`` off some modules; what nobody watches any more is as it was before."""
    with lock:
        for key in keys:
            wrapped = table.get(key)
            if wrapped is None:
                continue
            wrapped.end(observer)
            if not wrapped.users:
                del table[key]


def begin(observer: Observer) -> None:
    """Tell ``observer`` of modules and hooks met from now on; the first one changes ``_call_impl``'s code."""
    visible_again(observer)
    _calls.begin(observer)


def end(observer: Observer) -> None:
    """Take ``observer`` off every module; what nobody watches any more is as it was before."""
    with lock:
        _leave(observer, list(table))
        _calls.end(observer)
