"""Start a run that is paused in its own thread, for the console and for programs that step through a forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from fxdebug.api.losses import loss_or_mean
from fxdebug.api.run_model import arguments, settings_of, target_of
from fxdebug.capture.probe import PausedRun


def paused_run(
    model: nn.Module | Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    method: str = "forward",
    backward: bool | Callable[[Any], Tensor] = False,
) -> PausedRun:
    """Start a run of a model and return it, paused where the model's call begins.

    The arguments are those of :func:`fxdebug.fx_debug`. ``backward``: also run the backward, of the model's own loss or
    else of the mean of its first output, or of the loss that a function makes of what the model returned.
    """
    module, target, method = target_of(model, method)
    args, keywords = arguments(inputs, kwargs)
    settings = settings_of(values="stats", method=method, prune=False)
    loss = loss_or_mean if backward is True else backward

    def run_backward(output: Any) -> None:
        assert callable(loss)
        loss(output).backward()

    return PausedRun(target, module, args, keywords, settings, run_backward if callable(loss) else None)
