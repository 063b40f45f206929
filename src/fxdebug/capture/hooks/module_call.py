"""Put observers on modules for the length of a run, and see every ``module(...)`` through ``nn.Module._call_impl``.

Each module instance of a model gets an instance attribute ``forward`` for the length of the run; a hook would cost
eight times as much and switch off fast paths. One wrapper per instance serves all recordings that are on, in whatever
order they begin and end; the last one to end removes it.

The code of ``nn.Module._call_impl`` is replaced during the run. The new code sees modules that no parent has
registered, and the changes that hooks make to inputs and outputs. The function object stays the same, and its file name
begins with torch's: ``torch.compile`` would trace a function that had been replaced.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from fxdebug.capture.hooks.forward_wrapper import (
    ELSEWHERE,
    ForwardWrapper,
    Functions,
    copies,
    core_parts,
    lock,
    recorded_whole,
    remove_copied_wrapper,
    wrappers,
)
from fxdebug.capture.hooks.observers import Observer, inside, nested, visible_again, visible_to
from fxdebug.capture.hooks.patch import Setting, SharedPatch
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch
from fxdebug.capture.torch_state.uncounted import uncounted, uncounted_code
from fxdebug.native import dispatch


def _call_impl(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # this code runs with torch's globals
    if torch.compiler.is_dynamo_compiling():  # dynamo knows the answer, and reads no further
        from fxdebug.capture.hooks.module_call import _original_call_impl

        return _original_call_impl(self, *args, **kwargs)
    # Each text stands for the object of that name (``_code_with``): an import at each call takes microseconds.
    in_core: Any = "_in_core"
    if in_core is not None:
        elsewhere: Any = "ELSEWHERE"
        output = in_core(self, args, kwargs)
        if output is not elsewhere:
            return output
    on_call: Any = "_on_call"
    return on_call(self, args, kwargs)


@uncounted
def _on_call(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one ``module(...)``; every such call passes through here while a recording is on."""
    wrapper = wrappers.get(id(self))
    if (
        wrapper is not None
        and self.__dict__.get("forward") is wrapper.method
        and len(wrapper.users) - len(wrapper.temporary) == len(_calls.users)
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
    if (
        internals.eval_frame_callback() is not None or is_traced_by_torch()
    ):  # no Python of ours may run in what torch compiles
        return _original_call_impl(self, *args, **kwargs)
    return _observed(self, args, kwargs)


@uncounted
def _observed(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    new, temporary = _add_temporary(self)
    run: Callable[..., Any] = types.MethodType(_original_call_impl, self)
    uncovered = _uncovered(self, new)
    if uncovered:
        run = nested(uncovered, self, recorded_whole(self, run))
    for observer in reversed(visible_to(_calls.users)):
        run = inside(observer.around_call, self, run)
    try:
        return run(*args, **kwargs)
    finally:
        if temporary is not None:
            _remove_temporary(temporary)


def _uncovered(module: nn.Module, new: tuple[Observer, ...]) -> tuple[Observer, ...]:
    """Return the observers that no wrapper shows this call to: the module has none, or the program replaced it."""
    wrapper = wrappers.get(id(module))
    if wrapper is None:
        return new
    if module.__dict__.get("forward") is wrapper.method:
        return ()
    wrapper.bypassed = True
    return visible_to(wrapper.users)


_class_call_impl = nn.Module._call_impl
_torch_code = _class_call_impl.__code__
_original_call_impl = types.FunctionType(_torch_code, torch_module.__dict__, "_call_impl")


def _code_with(in_core: Callable[..., Any] | None) -> types.CodeType:
    stands_for = {"_in_core": in_core, "ELSEWHERE": ELSEWHERE, "_on_call": _on_call}
    constants = tuple(
        [stands_for.get(each, each) if type(each) is str else each for each in _call_impl.__code__.co_consts]
    )
    return uncounted_code(_call_impl.__code__.replace(co_filename=_torch_code.co_filename, co_consts=constants))


@functools.lru_cache(4)
def _code_for(core: types.ModuleType | None) -> types.CodeType:
    """Return our code: the native core looks at a call first, where it is in use."""
    if core is None:
        return _code_with(None)
    return _code_with(core.on_call(*core_parts(), _calls, torch_module.__dict__, _original_call_impl))


def is_our_code(code: types.CodeType) -> bool:
    """Is this the code that ``_call_impl`` has during a recording? It names torch's file, with our line numbers."""
    return code.co_filename == _OUR_FILE


_OUR_FILE = _code_with(None).co_filename
internals.keep_dynamo_off(_on_call.__code__)  # dynamo inspects each frame in a compiled region: not this one


def _put_code(code: types.CodeType) -> None:
    _class_call_impl.__code__ = code  # the function stays the same object: see above


_calls = SharedPatch(  # its users are all observers, in the order in which they began
    Setting(
        "torch.nn.Module._call_impl.__code__",
        lambda: _class_call_impl.__code__,
        _put_code,
        lambda original: _code_for(dispatch.core()),
    ),
    lock=lock,
)


def _add_temporary(module: nn.Module) -> tuple[tuple[Observer, ...], ForwardWrapper | None]:
    """Attach the observers that want a module but did not know of it.

    They stay only for the length of the call, because a wrapper keeps its module alive. Returns these observers, and
    the wrapper to pass to :func:`_remove_temporary`, if any.
    """
    wrapper = wrappers.get(id(module))
    if wrapper is None:
        remove_copied_wrapper(module)
    attached = () if wrapper is None else wrapper.users
    new = tuple(
        [observer for observer in visible_to(_calls.users) if observer not in attached and observer.wants(module)]
    )
    with lock:
        for observer in new:
            attach(observer, (module,))
        wrapper = wrappers.get(id(module))
        if wrapper is None or not (new or wrapper.temporary):
            return new, None
        wrapper.temporary_calls += 1
        wrapper.temporary = (*wrapper.temporary, *[observer for observer in new if observer not in wrapper.temporary])
    return new, wrapper


def _remove_temporary(wrapper: ForwardWrapper) -> None:
    with lock:
        wrapper.temporary_calls -= 1
        if not wrapper.temporary_calls:
            temporary, wrapper.temporary = wrapper.temporary, ()
            for observer in temporary:
                if wrappers.get(id(wrapper.module)) is wrapper:
                    _detach(observer, (id(wrapper.module),))


def attach(observer: Observer, modules: Iterable[nn.Module], functions: Functions | None = None) -> None:
    """Put ``observer`` on each of the modules; modules that cannot carry a wrapper are left alone.

    ``functions``: the replacements that earlier runs made for the forwards of classes, to be used again.
    """
    functions = {} if functions is None else functions
    computed: dict[type, bool] = {}
    with lock:
        for module in modules:
            wrapper = wrappers.get(id(module))
            if wrapper is None:
                kind = type(module)
                if kind not in computed:
                    computed[kind] = _is_computed(kind)
                if computed[kind]:
                    continue
                try:
                    wrapper = wrappers[id(module)] = ForwardWrapper(module, functions)
                except Exception:  # no forward at all, or one that cannot be looked at
                    continue
                wrapper.begin(observer)
            elif observer not in wrapper.users:
                wrapper.begin(observer)
                attached = wrapper.users
                wrapper.users = tuple([other for other in _calls.users if other in attached])


def _is_computed(kind: type) -> bool:
    """Is ``forward`` a property of this class? Then an instance attribute, our wrapper, would not be called."""
    for base in kind.__mro__:
        if "forward" in base.__dict__:
            return hasattr(base.__dict__["forward"], "__set__")
    return False


def _detach(observer: Observer, keys: Iterable[int]) -> None:
    """Take ``observer`` off some modules; a module left without observers is as it was before."""
    with lock:
        for key in keys:
            wrapper = wrappers.get(key)
            if wrapper is None:
                continue
            wrapper.end(observer)
            if not wrapper.users:
                del wrappers[key]


def begin(observer: Observer) -> None:
    """Show ``observer`` every ``module(...)`` from now on; the first observer changes ``_call_impl``'s code."""
    visible_again(observer)
    copies.begin(observer)
    _calls.begin(observer)


def end(observer: Observer) -> None:
    """Remove ``observer`` from every module; a module without observers is restored."""
    with lock:
        _detach(observer, list(wrappers))
        _calls.end(observer)
        copies.end(observer)
