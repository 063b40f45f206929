"""``debug``: run a model in the console, paused where it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from fxdebug import api
from fxdebug.features.console.live import LiveMachine
from fxdebug.features.console.start import converse, open_session, start_recorded
from fxdebug.printable import printable


def debug(
    model: nn.Module | Callable[..., Any] | api.Trace,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    method: str = "forward",
    backward: bool | Callable[[Any], Tensor] = False,
    commands: Iterable[str] = (),
) -> api.Trace:
    """Run a model in the console, paused where its call begins; return the trace of the run.

    ``inputs``, ``kwargs`` and ``method`` are those of :func:`fxdebug.fx_debug`. ``backward``: also run the backward,
    of the model's loss or else of the mean of its first output, or of the loss that a function makes of its output.
    ``commands`` are run first; without a terminal the session ends after them. In place of a model, a trace may be
    given: then the recorded run is stepped through.

    Where nothing is changed, outputs, gradients and random state are those of a plain forward, to the bit:
    ``debug(…).output``. ``quit`` ends the forward where it is, and restores random state, buffers, attributes and
    gradients; the trace has no output then. An exception of the model is raised unchanged when the session ends.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> lines = ["c relu", "set out = 7", "c"]
    >>> trace = fxdebug.debug(model, torch.tensor([-1.0, 2.0]), commands=lines)  # doctest: +ELLIPSIS
    Sequential  paused where it begins. help lists commands
    ...
    > 1#0/relu  relu  [5]
       args[0]  float32[2]  mean 0.5  std 2.12  min -1  max 2
       out      float32[2]  mean 7  std 0  min 7  max 7
    ...
    >>> trace.output
    tensor([7., 7.])
    """
    if isinstance(model, api.Trace):
        start_recorded(model, commands)
        return model
    return live_session(model, inputs, kwargs, method=method, backward=backward, commands=commands)[0]


def live_session(
    model: nn.Module | Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    method: str = "forward",
    backward: bool | Callable[[Any], Tensor] = False,
    commands: Iterable[str] = (),
) -> tuple[api.Trace, bool]:
    """Open the console on a model that runs; return the trace, and whether all lines of scripts and pipes worked."""
    run = api.paused_run(model, inputs, kwargs, method=method, backward=backward)
    try:
        session = open_session(LiveMachine(run))
        facts = "  paused where it begins. help lists commands"
        session.screen.line((printable(session.machine.name), "bold"), (facts, "dim"))
        worked = converse(session, commands)
    finally:
        run.quit()  # nothing is left to do where the session has ended
    if run.error is not None:
        raise run.error
    return api.Trace.of(run.trace()), worked
