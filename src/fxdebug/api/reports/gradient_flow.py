"""The gradients of a model: ``gradients``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.analyses.gradients.gradients import GradientRow, gradients_report
from fxdebug.analyses.gradients.rules import Limits
from fxdebug.api.reports.cost import mean_of_output
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments
from fxdebug.capture.runs.gradient_runs import run_with_gradients
from fxdebug.errors import UsageError, with_article


def gradients(
    model: nn.Module,
    inputs: Any = (),
    loss: Callable[[Any], Tensor] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    history: Sequence[float] = (),
    limits: Limits | None = None,
) -> Report[GradientRow]:
    """Run one forward and backward and report the gradients of what calls returned and of the parameters.

    ``loss`` makes of the model's output the scalar to differentiate; without it, the output's ``.loss`` is taken, as
    models of transformers return it where they are given labels. With an ``optimizer``, its step is taken on a copy
    and compared with the weights. ``history`` are the total norms of earlier steps, for advice about clipping.
    ``limits`` are the thresholds of the findings (:class:`fxdebug.analyses.gradients.rules.Limits`). Norms are
    2-norms summed in float64. Afterwards parameters, gradients, buffers, random generators and the optimizer are as
    before. Raises ``UsageError`` for a loss that is no scalar with a gradient and for a model on the meta device, and
    passes on exceptions of the model.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> report = fxdebug.gradients(model, torch.ones(1, 2), lambda output: output.sum())
    >>> [row.call for row in report.rows], report.parts[0].rows[0].state
    (['Sequential#0', '0#0', '1#0'], 'trained')
    """
    args, keywords = arguments(inputs, kwargs)
    record = run_with_gradients(model, args, keywords, loss or loss_of_output, optimizer)
    settings = {} if record.optimizer is None else {"optimizer": record.optimizer}
    data = gradients_report(
        record, type(model).__name__, settings, limits=Limits() if limits is None else limits, history=history
    )
    return Report.of(data)


def loss_of_output(output: Any) -> Tensor:
    """Return the ``loss`` of a model's output. Raises ``UsageError`` where it has none.

    >>> loss_of_output({"loss": torch.tensor(2.0)})
    tensor(2.)
    """
    loss = _loss_in(output)
    if loss is None:
        raise UsageError(
            f"the model returned {with_article(type(output).__name__)} without a loss: give one, such as "
            "loss=lambda output: output.mean(), or labels to a model of transformers"
        )
    return loss


def loss_or_mean(output: Any) -> Tensor:
    """Return the ``loss`` of a model's output, or the mean of the first floating tensor in it.

    Raises ``UsageError`` where there is neither.

    >>> loss_or_mean(torch.tensor([1.0, 3.0]))
    tensor(2.)
    """
    loss = _loss_in(output)
    return mean_of_output(output) if loss is None else loss


def _loss_in(output: Any) -> Tensor | None:
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return loss if isinstance(loss, Tensor) else None
