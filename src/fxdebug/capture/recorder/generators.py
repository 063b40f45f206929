"""Forwards that return before they are done: generators, coroutines and asynchronous generators.

The generator that such a forward returns is replaced by another one of the same kind, which steps it. So the calls that
it makes, its items and its result are recorded with the call of the forward, however and wherever it is consumed.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.torch_state.uncounted import uncounted

if TYPE_CHECKING:
    from fxdebug.capture.recorder.recorder import Recorder

KINDS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


class StepListener(Protocol):
    """Follows the steps of one such forward."""

    def step(self) -> AbstractContextManager[Any]:
        """Return a block around one step."""

    def yielded(self, item: Any) -> None:
        """Take notice of an item that its consumer gets."""

    def returned(self, result: Any) -> None:
        """Take notice of its end and its result."""

    def closed(self) -> None:
        """Take notice that it will not run any more, done or not."""


def relay(inner: Any, listener: StepListener) -> Any:
    """Return a generator or coroutine of the same kind that steps ``inner`` and shows each step to ``listener``."""
    outer: Any
    if isinstance(inner, types.GeneratorType):
        outer = _generator(inner, listener, listener.yielded)
    elif isinstance(inner, types.CoroutineType):
        outer = _coroutine(inner, listener)
        # If both are dropped before they began, only the outer one must warn that it was never awaited.
        weakref.finalize(outer, inner.close).atexit = False
    else:
        outer = _asynchronous(inner, listener)
    outer.__name__, outer.__qualname__ = inner.__name__, inner.__qualname__
    return outer


@uncounted
def _generator(inner: Any, listener: StepListener, yielded: Callable[[Any], None] | None) -> Generator[Any, Any, Any]:
    """Step anything with ``send``, ``throw`` and ``close`` as ``yield from`` does (PEP 380)."""
    resume, argument = inner.send, None
    try:
        while True:
            try:
                with listener.step():
                    items = [resume(argument)]
            except StopIteration as stop:
                if yielded is not None:
                    listener.returned(stop.value)
                return stop.value
            if yielded is not None:
                yielded(items[0])
            resume = argument = None
            try:
                argument = yield items.pop()  # popped: while this waits, it keeps no item alive
                resume = inner.send
            except GeneratorExit:
                with listener.step():
                    inner.close()
                raise
            except BaseException as error:
                resume, argument = inner.throw, error
    finally:
        if yielded is not None:
            listener.closed()


STEP_CODE = _generator.__code__


class _SteppedAwaitable(Awaitable[Any]):
    """Awaits something step by step. Objects that it passes up to the event loop are not recorded."""

    def __init__(self, inner: Any, listener: StepListener) -> None:
        self._inner = inner
        self._listener = listener

    @uncounted
    def __await__(self) -> Generator[Any, Any, Any]:
        return _generator(self._inner, self._listener, None)


@uncounted
async def _coroutine(inner: Any, listener: StepListener) -> Any:
    try:
        result = await _SteppedAwaitable(inner, listener)
        listener.returned(result)
        return result
    finally:
        listener.closed()


@uncounted
async def _asynchronous(inner: Any, listener: StepListener) -> AsyncGenerator[Any, Any]:
    resume, argument = inner.asend, None
    try:
        while True:
            try:
                items = [await _SteppedAwaitable(resume(argument), listener)]
            except StopAsyncIteration:
                return
            listener.yielded(items[0])
            resume = argument = None
            try:
                argument = yield items.pop()
                resume = inner.asend
            except GeneratorExit:
                await _SteppedAwaitable(inner.aclose(), listener)
                raise
            except BaseException as error:
                resume, argument = inner.athrow, error
    finally:
        listener.closed()


class RecordedSteps:
    """The steps of one forward that is a generator: its call is open during each of them."""

    def __init__(self, recorder: Recorder, frame: Frame, module: nn.Module) -> None:
        self._recorder = recorder
        self._frame = frame
        self._module = module

    def step(self) -> RecordedSteps:
        """Return the block around one step."""
        return self

    def __enter__(self) -> None:
        self._recorder.resume_call(self._frame, self._module)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._recorder.suspend_call(self._frame, error)

    def yielded(self, item: Any) -> None:
        """Record an item."""
        self._recorder.note_yielded(self._frame, len(self._frame.yielded or ()), item)

    def returned(self, result: Any) -> None:
        """Record the result of the last step."""
        if result is not None:
            self._recorder.note_yielded(self._frame, "returned", result)

    def closed(self) -> None:
        """Do nothing at the end."""
