"""``compare_gradients``: the gradients of two steps, of models, of tables of tensors, or of runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor, nn

from fxdebug.api.compare_runs import run_to_compare
from fxdebug.api.losses import loss_of_output
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments
from fxdebug.api.trace import Trace
from fxdebug.capture.probe import members
from fxdebug.errors import UsageError
from fxdebug.features.gradients.compared.facing import OneGradient, Step, paired_steps
from fxdebug.features.gradients.compared.of_model import one_gradient, step_of_grads, tables_of
from fxdebug.features.gradients.compared.of_run import step_of_run
from fxdebug.features.gradients.compared.report import ComparedRow, compared_gradients
from fxdebug.features.gradients.report import GradientRow, ParameterRow
from fxdebug.features.shared.gradients import gradient_runs
from fxdebug.features.shared.gradients.rules import STOPS, told_recomputed
from fxdebug.features.shared.records.gradients import GradientRecord

Gradients: TypeAlias = "nn.Module | Mapping[str, Tensor | None] | Report[GradientRow] | Trace | str | os.PathLike[str]"


def compare_gradients(
    a: Gradients,
    b: Gradients,
    inputs: Any = None,
    loss: Callable[[Any], Tensor] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    counts: Mapping[str, float] | None = None,
) -> Report[ComparedRow]:
    """Compare the gradients of two steps by parameter; ``a`` is the reference. ``report.answer`` is one sentence.

    Each is a model whose parameters have gradients (call this after ``backward()``), a mapping of names to gradients,
    a report of :func:`fxdebug.gradients`, or a run that such a report was attached to (``trace.with_measures``), also
    saved. With ``inputs`` (and ``loss``, as of :func:`fxdebug.gradients`) both are models, which run one forward and
    backward from the same random state; they are afterwards as before, and it is told where a gradient stops.

    Told are one factor of all gradients and what fits it, which parameters differ, in the order of the backward, and
    which have none, zeros or NaN on one side alone; also weight decay in the gradient, clipping by value and a weight
    that is tied on one side alone. Runs and reports are compared by norms. ``counts`` are numbers that may be a factor,
    by name: ``{"micro batches": 4, "ranks": 2}``. Rounding is judged as in :func:`fxdebug.compare`. Names that differ
    by a prefix alone (``module.`` of DDP) are paired. Raises ``UsageError`` for what has no gradients.

    >>> import copy, torch, fxdebug
    >>> one = torch.nn.Linear(3, 2)
    >>> other = copy.deepcopy(one)
    >>> one(torch.ones(4, 3)).mean().backward()
    >>> for part in torch.ones(4, 3).split(1):
    ...     other(part).mean().backward()
    >>> fxdebug.compare_gradients(one, other, counts={"micro batches": 4}).answer.partition(", and")[0]
    'all gradients of b are those of a × 4 (2 parameters): 4 is the number of micro batches'
    """
    if inputs is not None or kwargs is not None or loss is not None:
        if not isinstance(a, nn.Module) or not isinstance(b, nn.Module):
            raise UsageError("inputs are for two models: gradients that are there already have theirs")
        given = arguments(() if inputs is None else inputs, kwargs)
        steps = [_step_of_model(model, *given, loss) for model in (a, b)]
    else:
        steps = [_step(one, side) for one, side in ((a, "a"), (b, "b"))]
    return Report.of(compared_gradients(*paired_steps(*steps), counts))


def _step(given: Gradients, side: str) -> Step:
    if isinstance(given, nn.Module):
        return step_of_grads(given)
    if isinstance(given, Report):
        return _step_of_report(given)
    if isinstance(given, Mapping):
        return Step(f"gradients of {side}", {name: one_gradient(tensor) for name, tensor in given.items()})
    trace = run_to_compare(given)
    step = step_of_run(trace)
    if step is None:
        raise UsageError(
            f"{side} has no gradients: attach them to the run, fx_debug(model, inputs).with_measures("
            "fxdebug.gradients(model, inputs, loss)), or give models after backward()"
        )
    return step


def _step_of_model(
    model: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any], loss: Callable[[Any], Tensor] | None
) -> Step:
    """Run one forward and one backward, and return the gradients; exceptions of the model pass through."""
    kept: dict[str, Tensor] = {}
    record = gradient_runs.run_with_gradients(model, args, keywords, loss or loss_of_output, keep=kept)
    reach = {parameter.name: str(parameter.reach) for parameter in record.parameters}
    kinds = tables_of(model)
    gradients = {
        name: replace(
            one_gradient(kept.get(name), p, "" if reach.get(name) == "trained" else reach.get(name, "")),
            is_table=kinds.get(name),
        )
        for name, p in members.named_parameters_of(model)
    }
    recomputed = tuple([told_recomputed(one) for one in record.recomputed])
    return Step(type(model).__name__, gradients, _stops(record), recomputed)


def _stops(record: GradientRecord) -> tuple[str, ...]:
    """Return where gradients stop, in words: at an operation, or in a checkpoint that runs with gradients off."""
    inside = {parameter.name for parameter in record.parameters if parameter.path in record.checkpointed}
    return tuple(
        [
            f"{CHECKPOINTED}, {replace(stop, off=False).text}" if inside.issuperset(stop.parameters) else stop.text
            for stop in record.stops
        ]
    )


CHECKPOINTED = "in a reentrant checkpoint none of whose inputs asks for gradients"


def _step_of_report(report: Report[GradientRow]) -> Step:
    rows = [row for part in report.parts for row in part.rows if isinstance(row, ParameterRow)]
    if not rows:
        raise UsageError(f"a report of {report.analysis} has no gradients of parameters: give one of fxdebug.gradients")
    gradients = {}
    for row in rows:
        shape = tuple([int(size) for size in row.shape.split("×") if size])
        gradients[row.name] = OneGradient(shape, "float32", row.norm, why="" if row.norm is not None else row.state)
    stops = [
        f"{finding.what.partition(STOPS)[2]} ({finding.source})" for finding in report.findings if STOPS in finding.what
    ]
    return Step(report.subject, gradients, tuple(stops))
