"""``activations``: the distribution of what a model's modules return; ``heatmap``: one tensor as a picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fxdebug.api.files import load
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import target_of
from fxdebug.api.trace import Trace
from fxdebug.data.calls import Note
from fxdebug.errors import UsageError, first_line
from fxdebug.exports import registry
from fxdebug.features.activations.report import ActivationData, ActivationRow, activation_report
from fxdebug.features.shared.units.findings import ActivationLimits
from fxdebug.features.shared.units.measured_activations import Gathered, gather_of_model
from fxdebug.features.shared.units.origins import Origin, origin_of
from fxdebug.plugins.given import GivenModel
from fxdebug.query.names import parameters_by_module
from fxdebug.stats.cpu_sums import shaped_array_of
from fxdebug.stats.doubles import where_doubles
from fxdebug.stats.elements import elements, is_dense


class ActivationReport(ActivationData, Report[ActivationRow]):
    """The report on activations: a row for each module and activation function, and its distribution."""


def activations(
    model: nn.Module | Callable[..., Any] | Trace | str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    batches: Iterable[Any] | None = None,
    limits: ActivationLimits | None = None,
) -> ActivationReport:
    """Measure everything that the modules of a model return: distributions, outliers, units that do nothing.

    ``model`` is a module, a method of one, or a run that kept its tensors (``fx_debug(..., values="tensors")``): a
    trace or the folder of one. ``batches`` are several inputs, each in the form of ``inputs``; they are measured
    together. Histograms, moments and counts are exact, and taken from all elements while the model runs; no tensor is
    kept. Quantiles are exact for one batch, and within 1/4096 of the range for several. Activation functions that a
    forward calls itself are rows of their own. ``limits`` are the thresholds of the findings.
    Afterwards buffers, attributes of modules and random generators are as before. Exceptions of the model pass through.
    Raises ``UsageError`` for a run without tensors, ``LoadError`` for a path that is no run.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> report = fxdebug.activations(model, torch.randn(8, 4))
    >>> [(row.call, row.tokens) for row in report.rows], sum(report.distributions["1"].counts)
    ([('0#0', 8), ('1#0', 8), ('Sequential#0', 8)], 24)
    """
    limits = ActivationLimits() if limits is None else limits
    if isinstance(model, (str, os.PathLike)):
        model = load(model)
    gathered = Gathered(limits)
    if isinstance(model, Trace):
        notes = _of_trace(model, gathered)
        return _report(model.model, gathered, limits, 1, notes)
    module, target, _ = target_of(model, "forward")
    notes, count = gather_of_model(module, target, [inputs] if batches is None else batches, kwargs, gathered)
    return _report(type(module).__name__, gathered, limits, count, notes)


def _report(
    model: str, gathered: Gathered, limits: ActivationLimits, batches: int, notes: list[Note]
) -> ActivationReport:
    data = activation_report(model, gathered.activations(model), limits=limits, batches=batches, notes=notes)
    report = ActivationReport.of(data)
    assert isinstance(report, ActivationReport)
    return report


def _of_trace(trace: Trace, gathered: Gathered) -> list[Note]:
    """Measure the outputs that a run kept; return notes about those that it did not keep."""
    missing = 0
    notes: list[Note] = []
    made: dict[int, Origin] = {}
    held = parameters_by_module(trace)
    for call in sorted(trace.calls, key=lambda call: call.finished or 0):
        value = next(iter(call.outputs or ()), None)
        if value is None:
            continue
        first = next(iter(call.inputs), None)
        before = None if first is None else made.get(first.number)
        own = () if call.has_submodules else held.get(call.path, ())
        weights = [len(parameter.shape) for parameter in own if parameter.kind == "parameter"]
        units = origin_of(call.type, call.path, weights, value.shape, () if first is None else first.shape, before)
        units = made.setdefault(value.number, units)  # of calls that return the same tensor, the innermost one's
        if value.saved is None:
            missing += 1
            continue
        given = None if first is None or first.saved is None else trace.tensor(first)
        result = trace.tensor(value)
        try:
            with torch.no_grad():
                gathered.add(call.path, call.type, "", result, given, units)
        except Exception as error:  # as in a live run: one result of a kind without numbers costs its own row
            notes.append(Note(f"a result was not measured: {type(error).__name__}: {first_line(error)}", call.path))
    if missing == len(trace.calls):
        raise UsageError("the run kept no tensors: record it with values='tensors', or give the model and inputs")
    notes.insert(0, Note("activation functions called in a forward are not kept by a run: give the model and inputs"))
    return [*notes, Note(f"{missing} calls returned tensors that were not kept")] if missing else notes


Reduce = Literal["mean", "max", "absmax", "first"]


def heatmap(tensor: Tensor, path: str | os.PathLike[str], *, reduce: Reduce | None = None, title: str = "") -> Path:
    """Draw a tensor to a ``.png``, ``.svg`` or ``.pdf``: rows down, columns across.

    A tensor with more than two dimensions is reduced over all but the last two: ``reduce`` must say how, by the
    ``mean``, ``max``, ``absmax``, or the ``first``. More than 1000 rows or columns are shown as the largest of each
    block. NaN stay empty. Raises ``UsageError`` for a tensor that needs ``reduce``, ``MissingExtra`` without
    matplotlib.

    >>> import torch, fxdebug, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fxdebug.heatmap(torch.eye(4), folder + "/eye.png").name
    'eye.png'
    """
    if tensor.is_nested:
        raise UsageError("a nested tensor has no rows and columns: draw one of its parts, tensor.unbind()[0]")
    if not is_dense(tensor):
        tensor = elements(tensor).reshape(tensor.shape)
    matrix = reduced(tensor.detach(), reduce)
    name = title or f"{str(tensor.dtype)[6:]} {'×'.join(map(str, tensor.shape))}"
    return registry.export("matrix", shaped_array_of(matrix.cpu().double()), Path(path), title=name)


def reduced(tensor: Tensor, reduce: Reduce | None) -> Tensor:
    """Return a tensor with two dimensions: one is a single row, more are reduced as ``reduce`` says."""
    if tensor.dim() < 2:
        return tensor.reshape(1, -1)
    if tensor.dim() == 2:
        return tensor
    if reduce is None:
        shape = "×".join(map(str, tensor.shape))
        raise UsageError(
            f"a tensor of {shape} has {tensor.dim()} dimensions: say how to come to two, with reduce='mean', 'max', "
            "'absmax' or 'first'"
        )
    flat = tensor.flatten(0, -3)
    if reduce == "first":
        return flat[0]
    if reduce == "absmax":
        return flat.abs().amax(0)
    if reduce not in ("mean", "max"):
        raise UsageError(f"reduce={reduce!r}: use 'mean', 'max', 'absmax' or 'first'")
    return where_doubles(flat).double().mean(0) if reduce == "mean" else flat.amax(0)


def on_model(given: GivenModel, limits: ActivationLimits) -> ActivationReport:
    """Answer ``check`` about a model."""
    return activations(given.model, given.inputs, given.kwargs, limits=limits)


def on_run(trace: Trace, limits: ActivationLimits) -> ActivationReport:
    """Answer ``check`` about a run that kept its tensors."""
    return activations(trace, limits=limits)
