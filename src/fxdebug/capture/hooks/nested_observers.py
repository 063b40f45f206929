"""Several recordings around one call: the first one outermost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fxdebug.capture.hooks.observers import Observer

# Wrappers around wrappers ------------------------------------------------------------------------


def nested(observers: tuple[Observer, ...], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    """The first observer outermost: a recording begun inside another one is seen by it as part of the run."""
    for observer in reversed(observers):
        run = around(observer.call, module, run)
    return run


def around(call: Callable[..., Any], module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
    def around(*args: Any, **kwargs: Any) -> Any:
        return call(module, run, args, kwargs)

    around.within = innermost(run)  # type: ignore[attr-defined]
    return around


def innermost(run: Callable[..., Any]) -> Callable[..., Any]:
    """What runs in the end: without the recordings around it."""
    within: Callable[..., Any] = getattr(run, "within", run)
    return within
