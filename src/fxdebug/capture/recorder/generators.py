"""Forwards that return before they are done: generators, coroutines and asynchronous generators.

What such a forward returns is handed on inside another one of the same kind, which steps it: so what it
calls, yields and returns is recorded with its call, however and wherever it is consumed.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from fxdebug.capture.recorder.frame import Frame

if TYPE_CHECKING:
    from fxdebug.capture.recorder.recorder import Recorder

KINDS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


class Watcher(Protocol):
    """Is told how the steps of one such forward go."""

    def step(self) -> AbstractContextManager[Any]:
        """A block in which it runs on."""

    def yielded(self, thing: Any) -> None:
        """It gave this to its consumer."""

    def returned(self, thing: Any) -> None:
        """It is done, and this is its result."""

    def closed(self) -> None:
        """It will not run any more, done or not."""


def relayed(inner: Any, watcher: Watcher) -> Any:
    """A generator, coroutine or asynchronous generator that does what ``inner`` does, watched."""
    outer: Any
    if isinstance(inner, types.GeneratorType):
        outer = _generator(inner, watcher, watcher.yielded)
    elif isinstance(inner, types.CoroutineType):
        outer = _coroutine(inner, watcher)
        # Thrown away before it began, it must be the only one to say that it was never awaited.
        weakref.finalize(outer, inner.close).atexit = False
    else:
        outer = _asynchronous(inner, watcher)
    outer.__name__, outer.__qualname__ = inner.__name__, inner.__qualname__
    return outer


def _generator(inner: Any, watcher: Watcher, yielded: Callable[[Any], None] | None) -> Generator[Any, Any, Any]:
    """Step anything with ``send``, ``throw`` and ``close`` as ``yield from`` does (PEP 380)."""
    resume, argument = inner.send, None
    try:
        while True:
            try:
                with watcher.step():
                    given = [resume(argument)]
            except StopIteration as stop:
                if yielded is not None:
                    watcher.returned(stop.value)
                return stop.value
            if yielded is not None:
                yielded(given[0])
            resume = argument = None
            try:
                argument = yield given.pop()  # popped: while it waits, this keeps nothing alive
                resume = inner.send
            except GeneratorExit:
                with watcher.step():
                    inner.close()
                raise
            except BaseException as error:
                resume, argument = inner.throw, error
    finally:
        if yielded is not None:
            watcher.closed()


STEPPED = _generator.__code__


class _Steps(Awaitable[Any]):
    """Awaits something step by step; what goes up to the event loop is not a value of the forward."""

    def __init__(self, inner: Any, watcher: Watcher) -> None:
        self._inner = inner
        self._watcher = watcher

    def __await__(self) -> Generator[Any, Any, Any]:
        return _generator(self._inner, self._watcher, None)


async def _coroutine(inner: Any, watcher: Watcher) -> Any:
    try:
        result = await _Steps(inner, watcher)
        watcher.returned(result)
        return result
    finally:
        watcher.closed()


async def _asynchronous(inner: Any, watcher: Watcher) -> AsyncGenerator[Any, Any]:
    resume, argument = inner.asend, None
    try:
        while True:
            try:
                given = [await _Steps(resume(argument), watcher)]
            except StopAsyncIteration:
                return
            watcher.yielded(given[0])
            resume = argument = None
            try:
                argument = yield given.pop()
                resume = inner.asend
            except GeneratorExit:
                await _Steps(inner.aclose(), watcher)
                raise
            except BaseException as error:
                resume, argument = inner.athrow, error
    finally:
        watcher.closed()


class Steps:
    """One forward that is a generator, as it is run step by step: its call is open during each step."""

    def __init__(self, recorder: Recorder, frame: Frame, module: nn.Module) -> None:
        self._recorder = recorder
        self._frame = frame
        self._module = module

    def step(self) -> Steps:
        """The block in which one step runs."""
        return self

    def __enter__(self) -> None:
        self._recorder.resume(self._frame, self._module)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._recorder.suspend(self._frame, error)

    def yielded(self, thing: Any) -> None:
        """A step gave this."""
        self._recorder.gave(self._frame, len(self._frame.gave or ()), thing)

    def returned(self, thing: Any) -> None:
        """The last step returned this."""
        if thing is not None:
            self._recorder.gave(self._frame, "returned", thing)

    def closed(self) -> None:
        """Nothing is to be done at the end."""
