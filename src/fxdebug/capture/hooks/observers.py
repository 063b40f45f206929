"""Threads in which bodies are run again, to explain or to check them: no recording hears of that but who does it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, Protocol

from torch import nn

visible_in_thread: dict[int, tuple[Any, ...]] = {}  # by thread: the only ones that hear of what it runs


@contextlib.contextmanager
def hidden_from_recordings() -> Iterator[None]:
    """A block in which of what this thread runs only those hear that it begins in there."""
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
    """This one begins in this thread."""
    thread = get_ident()
    if thread in visible_in_thread:
        visible_in_thread[thread] = (*visible_in_thread[thread], observer)


def visible_to(observers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of them that hear of what this thread runs."""
    only = visible_in_thread.get(get_ident())
    return observers if only is None else tuple([observer for observer in observers if observer in only])


class Observer(Protocol):
    """A recording that is on: it is told of every call of the modules it covers, in every thread."""

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``run(*args, **kwargs)`` and return what it returns."""

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same around the whole ``module(...)``, hooks included, for modules that have hooks."""

    def meets(self, module: nn.Module) -> bool:
        """A module without a wrapper is about to run: does this recording want one on it?"""
