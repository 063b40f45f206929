"""The gradients of a model: ``gradients``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.analyses.numbers.numerics import check_numerics
from fxdebug.api.losses import loss_of_output
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, fx_debug
from fxdebug.capture.probe import deep_copy, state_restored
from fxdebug.data.findings import ERROR, Finding
from fxdebug.data.report import ReportData
from fxdebug.features.gradients.report import GradientRow, gradients_report
from fxdebug.features.shared.gradients import gradient_runs
from fxdebug.features.shared.gradients.rules import Limits
from fxdebug.plugins.given import GivenModel


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
    ``limits`` are the thresholds of the findings (:class:`fxdebug.features.shared.gradients.rules.Limits`). Norms are
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
    record = gradient_runs.run_with_gradients(model, args, keywords, loss or loss_of_output, optimizer)
    settings = {} if record.optimizer is None else {"optimizer": record.optimizer}
    data = gradients_report(
        record, type(model).__name__, settings, limits=Limits() if limits is None else limits, history=history
    )
    if record.loss is not None and not math.isfinite(record.loss):
        data = _with_origin(data, model, args, keywords, loss or loss_of_output)
    return Report.of(data)


def _with_origin(
    data: ReportData[GradientRow],
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    loss: Callable[[Any], Tensor],
) -> ReportData[GradientRow]:
    """Say where in the forward, or in the loss, its NaN or infinity begins."""
    made, where = _first_not_finite(model, args, kwargs), "forward"
    if made is None:  # by the model: all is finite that it returns
        made, where = _first_not_finite(_WithLoss(model, loss), args, kwargs), "loss"
    if made is None or (where == "loss" and made.path.partition(".")[0] == "model"):
        return data
    told = [
        replace(
            finding,
            path=made.path,
            call=made.call if where == "forward" else finding.call,
            node=made.node if where == "forward" else finding.node,
            op=made.op,
            source=made.source,
            what=f"{finding.what.partition(':')[0]}, and it begins in the {where}: {made.what}",
            advice=made.advice or "Keep what it is given away from there: clamp it, or add a small number.",
        )
        if finding.rule == "loss not finite"
        else finding
        for finding in data.findings
    ]
    return replace(data, findings=tuple(told))


class _WithLoss(nn.Module):
    """A model and the loss of what it returns, as one."""

    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self._loss = model, loss
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._loss(self.model(*args, **kwargs))


def _first_not_finite(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Finding | None:
    try:
        with state_restored(model):
            trace = fx_debug(model, *deep_copy((args, dict(kwargs))))
            found = check_numerics(trace).findings
    except Exception:  # of the model, or of copies: the finding stays without a place
        return None
    bad = [one for one in found if one.severity == ERROR and one.output]
    return bad[0] if bad else None


def on_model(given: GivenModel, limits: Limits) -> Report[GradientRow]:
    """Answer ``check`` about a model."""
    return gradients(
        given.module, given.inputs, given.loss, kwargs=given.kwargs, optimizer=given.optimizer, limits=limits
    )
