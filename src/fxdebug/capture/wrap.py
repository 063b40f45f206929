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

from fxdebug.capture.hooks.patch import Attribute, OwnAttribute, Setting, SharedPatch
from fxdebug.capture.resting import awake, heard, heard_again
from fxdebug.capture.torch_state import internals
from fxdebug.capture.traced import is_traced

_compiling = torch.compiler.is_dynamo_compiling


class Observer(Protocol):
    """A recording that is on: it is told of every call of the modules it covers, in every thread."""

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``run(*args, **kwargs)`` and return what it returns."""

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same around the whole ``module(...)``, hooks included, for modules that have hooks."""

    def meets(self, module: nn.Module) -> bool:
        """A module without a wrapper is about to run: does this recording want one on it?"""


class _Wrapped(SharedPatch):
    """The wrapper on one module: what stood there before, and who is watching (``users``)."""

    bypassed = False  # has the program put another forward in our place?
    visitors: tuple[Observer, ...] = ()  # those of them that watch while a call is on, no longer
    visits = 0  # such calls that are on

    def __init__(self, module: nn.Module, functions: Functions) -> None:
        if "forward" in module.__dict__:
            _clean(module)
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
        super().__init__(OwnAttribute("<module>.forward", module.__dict__, "forward", self.method), lock=_lock)


_lock = threading.RLock()
_table: dict[int, _Wrapped] = {}  # id(module) → wrapper; the wrapper keeps its module alive


Functions = dict[Any, Callable[..., Any]]  # a class's forward → the function that stands in for it


def _function_for(original: Callable[..., Any], of_class: bool = False) -> Callable[..., Any]:
    """The function that stands in as ``module.forward``, bound to its module as a method is.

    One for all modules with a forward ``of_class``, or one for a module that has its own.
    """
    function = original if of_class else getattr(original, "__func__", None)  # not bound: it keeps no module alive

    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        wrapped = _table.get(id(self))
        if wrapped is None or wrapped.method.__func__ is not forward:  # a deep copy made meanwhile: it runs its own
            return original(*args, **kwargs) if function is None else function(self, *args, **kwargs)
        run, found = wrapped.original, wrapped.found
        if found is not None and getattr(type(self), "forward", None) is not found:
            run = _of_class(self)  # the class was patched meanwhile
        if is_traced() or (wrapped.bypassed and _whole.modules[-1:] == (self,)):
            return run(*args, **kwargs)  # traced by torch itself, or recorded already: be as if not there
        observers = awake(wrapped.users) if heard else wrapped.users
        if len(observers) == 1:
            return observers[0].call(self, run, args, kwargs)
        return _nested(observers, self, run)(*args, **kwargs)

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
    wrapped = _table.get(id(method.__self__))
    own = {"forward": wrapped.original} if wrapped is not None and wrapped.had_own else {}
    return {name: content for name, content in state.items() if name != "forward"} | own


def _reduce_ex(self: nn.Module, protocol: Any) -> Any:
    reduced = _original_reduce_ex(self, protocol)
    if isinstance(reduced, tuple) and len(reduced) > 2:
        return (*reduced[:2], _as_it_was(reduced[2]), *reduced[3:])
    return reduced


def _clean(module: nn.Module) -> None:
    """Take another module's wrapper out of a copy of its ``__dict__`` (``DataParallel`` makes such replicas)."""
    method = module.__dict__.get("forward")
    if method is not None and _stands_in(method) and method.__self__ is not module:
        module.__dict__.pop("forward")
        wrapped = _table.get(id(method.__self__))
        if wrapped is not None and wrapped.had_own:
            module.__dict__["forward"] = wrapped.original


_original_reduce_ex = nn.Module.__reduce_ex__


# Wrappers around wrappers ------------------------------------------------------------------------


def _nested(observers: tuple[Observer, ...], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    """The first observer outermost: a recording begun inside another one is seen by it as part of the run."""
    for observer in reversed(observers):
        run = _around(observer.call, module, run)
    return run


def _around(call: Callable[..., Any], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    def around(*args: Any, **kwargs: Any) -> Any:
        return call(module, run, args, kwargs)

    around.within = innermost(run)  # type: ignore[attr-defined]
    return around


def innermost(run: Callable[..., Any]) -> Callable[..., Any]:
    """What runs in the end: without the recordings around it."""
    within: Callable[..., Any] = getattr(run, "within", run)
    return within


def _call_impl(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # this code runs with torch's globals
    from fxdebug.capture.wrap import _compiling, _original_call_impl, _seen  # names there could be gone in the middle

    if _compiling():
        return _original_call_impl(self, *args, **kwargs)
    return _seen(self, args, kwargs)


def _seen(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Every ``module(...)`` passes here while a recording is on."""
    wrapped = _table.get(id(self))
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
        run = _nested(unmet, self, _as_a_whole(self, run))
    for observer in reversed(awake(_calls.users)):
        run = _around(observer.outer, self, run)
    try:
        return run(*args, **kwargs)
    finally:
        if visited is not None:
            _end_visit(visited)


# Modules whose forward we are not in front of: the whole call is recorded in its stead -------------


class _Whole(threading.local):
    """The modules that this thread is calling in this way, outermost first."""

    modules: tuple[nn.Module, ...] = ()


_whole = _Whole()


def _unmet(module: nn.Module, new: tuple[Observer, ...]) -> tuple[Observer, ...]:
    """Who would not hear of a call: it carries no wrapper, or the program has put another forward there."""
    wrapped = _table.get(id(module))
    if wrapped is None:
        return new
    if module.__dict__.get("forward") is wrapped.method:
        return ()
    wrapped.bypassed = True
    return awake(wrapped.users)


def _as_a_whole(module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    def whole(*args: Any, **kwargs: Any) -> Any:
        before = _whole.modules
        _whole.modules = (*before, module)
        try:
            return run(*args, **kwargs)
        finally:
            _whole.modules = before

    return whole


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
    Attribute("torch.nn.Module.__reduce_ex__", nn.Module, "__reduce_ex__", lambda found: _reduce_ex),
    lock=_lock,
)


def stands_in(code: types.CodeType) -> bool:
    """Is this the code that ``_call_impl`` has meanwhile? It bears the name of torch's file, with our lines."""
    return code is _our_code


def _visit(module: nn.Module) -> tuple[tuple[Observer, ...], _Wrapped | None]:
    """Put those on a module that want to watch it though nobody registered it with them.

    They stay while a call of it is on, no longer: a wrapper keeps its module alive. Returns who they
    are, and what to give to :func:`_end_visit`.
    """
    wrapped = _table.get(id(module))
    if wrapped is None:
        _clean(module)
    watching = () if wrapped is None else wrapped.users
    new = tuple([observer for observer in awake(_calls.users) if observer not in watching and observer.meets(module)])
    with _lock:
        for observer in new:
            watch(observer, (module,))
        wrapped = _table.get(id(module))
        if wrapped is None or not (new or wrapped.visitors):
            return new, None
        wrapped.visits += 1
        wrapped.visitors = (*wrapped.visitors, *[observer for observer in new if observer not in wrapped.visitors])
    return new, wrapped


def _end_visit(wrapped: _Wrapped) -> None:
    with _lock:
        wrapped.visits -= 1
        if not wrapped.visits:
            visitors, wrapped.visitors = wrapped.visitors, ()
            for observer in visitors:
                if _table.get(id(wrapped.module)) is wrapped:
                    _leave(observer, (id(wrapped.module),))


def watch(observer: Observer, modules: Iterable[nn.Module], functions: Functions | None = None) -> None:
    """Put ``observer`` on each of the modules; modules that cannot carry a wrapper are left alone.

    ``functions``: what stood in for the forwards of these modules' classes the last time, to be used again.
    """
    functions = {} if functions is None else functions
    computed: dict[type, bool] = {}
    with _lock:
        for module in modules:
            wrapped = _table.get(id(module))
            if wrapped is None:
                kind = type(module)
                if kind not in computed:
                    computed[kind] = _is_computed(kind)
                if computed[kind]:
                    continue
                try:
                    wrapped = _table[id(module)] = _Wrapped(module, functions)
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
    with _lock:
        for key in keys:
            wrapped = _table.get(key)
            if wrapped is None:
                continue
            wrapped.end(observer)
            if not wrapped.users:
                del _table[key]


def begin(observer: Observer) -> None:
    """Tell ``observer`` of modules and hooks met from now on; the first one changes ``_call_impl``'s code."""
    heard_again(observer)
    _calls.begin(observer)


def end(observer: Observer) -> None:
    """Take ``observer`` off every module; what nobody watches any more is as it was before."""
    with _lock:
        _leave(observer, list(_table))
        _calls.end(observer)
