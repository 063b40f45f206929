"""Observers: the interface between a recording and the wrappers, their visibility by thread, and their nesting.

While a forward is run again, to explain or to check it, its calls are hidden from all other recordings that are on
(:func:`hidden_from_recordings`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, Protocol, TypeVar

from torch import nn

from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.torch_state.uncounted import uncounted

CallT = TypeVar("CallT")


class Observer(Protocol):
    """A recording that is on. The wrappers pass it every call of the modules it covers, in every thread."""

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward, ``run(*args, **kwargs)``, and return what it returns."""

    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the whole ``module(...)`` with its hooks, for modules that have hooks."""

    def wants(self, module: nn.Module) -> bool:
        """Should a module that is about to run without a wrapper get one for this recording?"""


class ForwardsOnly:
    """The rest of an observer that watches only forwards, and only those of modules that were there at the start.

    It is told of regions and labels, too.

    >>> class Count(ForwardsOnly):
    ...     forwards = 0
    ...     def around_forward(self, module, run, args, kwargs):
    ...         self.forwards += 1
    ...         return run(*args, **kwargs)
    >>> Count().wants(nn.ReLU())
    False
    """

    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the whole ``module(...)``: its hooks belong to the caller."""
        return run(*args, **kwargs)

    def wants(self, module: nn.Module) -> bool:
        """Leave modules that were not in the model when the run began without a wrapper."""
        return False

    def region_begins(self, name: str) -> int:
        """Leave a region of the program alone; -1 is the number of none."""
        return -1

    def region_ends(self, number: int) -> None:
        """Leave a region of the program alone."""

    def label(self, name: str) -> None:
        """Leave a label of the program alone."""


class CallRecorder(Protocol[CallT]):
    """The part of a recorder that functions patched during a run use (to start a thread, to swap tensors)."""

    def innermost(self) -> CallT | None:
        """Return the innermost call open in this thread."""

    def mark_not_replayable(self, call: CallT, reason: ReasonText) -> None:
        """Note that the forward of this call must not be run a second time."""

    def before_swap(self, tensors: tuple[Any, ...]) -> None:
        """Forget tensors that are about to exchange their contents."""

    def on_cuda_graph(self, *, replays: bool) -> None:
        """Note that this thread has begun to capture a CUDA graph, or replayed one."""


# Which recordings see a thread's calls -----------------------------------------------------------

visible_in_thread: dict[int, tuple[Any, ...]] = {}  # thread → the only observers that see its calls


@contextlib.contextmanager
def hidden_from_recordings() -> Iterator[None]:
    """Show this thread's module calls, inside this block, only to observers that begin within it."""
    thread = get_ident()
    before = visible_in_thread.get(thread)
    visible_in_thread[thread] = ()
    try:
        yield
    finally:
        if before is None:
            visible_in_thread.pop(thread, None)
        else:
            visible_in_thread[thread] = before


def visible_again(observer: Any) -> None:
    """Show this thread's calls to an observer that begins here, even inside :func:`hidden_from_recordings`."""
    thread = get_ident()
    if thread in visible_in_thread:
        visible_in_thread[thread] = (*visible_in_thread[thread], observer)


def visible_to(observers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return those observers that see this thread's calls."""
    only = visible_in_thread.get(get_ident())
    return observers if only is None else tuple([observer for observer in observers if observer in only])


# Several recordings around one call --------------------------------------------------------------


def nested(observers: tuple[Observer, ...], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``run`` inside all observers, the first one outermost: to it, later recordings are part of the run."""
    for observer in reversed(observers):
        run = inside(observer.around_forward, module, run)
    return run


@uncounted
def inside(around: Callable[..., Any], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``run`` inside ``around``, a method of an observer."""

    def observed(*args: Any, **kwargs: Any) -> Any:
        return around(module, run, args, kwargs)

    observed.within = innermost(run)  # type: ignore[attr-defined]
    return observed


def innermost(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs in the end, without the recordings around it."""
    within: Callable[..., Any] = getattr(run, "within", run)
    return within
