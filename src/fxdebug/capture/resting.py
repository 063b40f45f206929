"""Threads in which bodies are run again, to explain or to check them: no recording hears of that but who does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from threading import get_ident
from typing import Any

heard: dict[int, tuple[Any, ...]] = {}  # by thread: the only ones that hear of what it runs


@contextlib.contextmanager
def resting() -> Iterator[None]:
    """A block in which of what this thread runs only those hear that it begins in there."""
    thread = get_ident()
    before = heard.get(thread)
    heard[thread] = ()
    try:
        yield
    finally:
        if before is None:
            heard.pop(thread, None)
        else:
            heard[thread] = before


def heard_again(observer: Any) -> None:
    """This one begins in this thread."""
    thread = get_ident()
    if thread in heard:
        heard[thread] = (*heard[thread], observer)


def awake(observers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of them that hear of what this thread runs."""
    only = heard.get(get_ident())
    return observers if only is None else tuple([observer for observer in observers if observer in only])
