"""Attach an observer to all modules of a model for the length of a block, and make room for it on Python's stack.

Reading order: after ``runs/run_once``; then ``hooks/forward_wrapper``, which is put on each module.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext

from torch import nn

from fxdebug.capture.hooks import module_call, observers
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.capture.hooks.compiled_modules import compiled_in
from fxdebug.capture.hooks.patch import Setting, SharedPatch
from fxdebug.capture.hooks.regions import Listening
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.tape.compiled_regions import CompiledRegions
from fxdebug.capture.torch_state.module_members import children_of
from fxdebug.errors import first_line, with_article

FRAMES_PER_CALL = 7  # Python frames we add to each nested module call


class Attached:
    """An observer on all modules of a model, for the length of a block.

    An observer of forwards only is told of regions and labels, too.

    >>> import torch
    >>> class Shout(observers.ForwardsOnly):
    ...     def around_forward(self, module, run, args, kwargs):
    ...         print(type(module).__name__)
    ...         return run(*args, **kwargs)
    >>> model = nn.Sequential(nn.Flatten(), nn.ReLU())
    >>> with Attached(Shout(), Sites(model)):
    ...     result = model(torch.ones(2, 3))
    Sequential
    Flatten
    ReLU
    """

    def __init__(self, observer: observers.Observer, sites: Sites) -> None:
        self._observer: observers.Observer | None = observer
        self._sites = sites
        self._listening = Listening(observer) if isinstance(observer, observers.ForwardsOnly) else nullcontext()
        self._compiled = compiled_in(sites.registered())

    def notes(self) -> list[str]:
        """Return what is to be noted about compiled modules."""
        shut = [*self._compiled.closed, *self._compiled.forwards]
        return [
            *[
                f"{name} was compiled with the backend 'eager', which compiles nothing: its Python ran"
                for name in self._names(self._compiled.open)
            ],
            *[
                f"{name} is compiled and ran as one piece: the modules inside it are not seen, as if never called. "
                "To see them, trace the model without torch.compile"
                for name in self._names([module for module in shut if any(children_of(module))])
            ],
        ]

    def _names(self, modules: list[nn.Module]) -> list[str]:
        """Return the names of modules of the model."""
        sites = [self._sites.of(module) for module in modules]
        return [site.path or "the model" for site in sites if site is not None]

    def is_closed(self, module: nn.Module | None) -> bool:
        """Is this a compiled module that stays closed? Nothing in it is recorded, nor the compiler's modules."""
        return any(module is closed for closed in self._compiled.closed)

    def wants(self, module: nn.Module, recorder: Recorder) -> bool:
        """Should calls of a module that was not registered at the beginning be recorded? If so, name the module."""
        caller = recorder.innermost()
        if caller is None or self.is_closed(caller.module) or CompiledRegions.is_inside():
            return False
        try:
            self._sites.discover(module, recorder.stack() or [caller])
        except Exception as error:
            kind = with_article(type(module).__name__)
            recorder.note(f"a call of {kind} is missing: {type(error).__name__}: {first_line(error)}")
            return False
        return True

    def __enter__(self) -> None:
        assert self._observer is not None
        try:
            _recursion.begin(self)
            collect_less_often.begin(self)
            self._compiled.begin(self._observer)
            module_call.begin(self._observer)
            hidden = self._compiled.hidden()
            modules = [module for module in self._sites.registered() if id(module) not in hidden]
            module_call.attach(self._observer, modules, self._sites.layout.forwards)
            self._listening.__enter__()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        self._listening.__exit__(*error)
        if self._observer is not None:
            module_call.end(self._observer)
        self._compiled.end()
        collect_less_often.end(self)
        _recursion.end(self)
        self._observer = None  # it refers to us: break the cycle


def _limit_with_wrappers(limit: int) -> int:
    """Return the limit at which a model that just fits still fits with wrappers.

    Without them a module call takes three Python frames, so at most a third of the limit are module calls.
    """
    return limit + FRAMES_PER_CALL * (limit // 3) + 200


_recursion = SharedPatch(
    Setting("sys.setrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit, _limit_with_wrappers),
)
