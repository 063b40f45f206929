"""``activations``: the distribution of what a model's modules return; ``heatmap``: one tensor as a picture."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fxdebug.analyses.activations.findings import ActivationLimits
from fxdebug.analyses.activations.measured import Activation
from fxdebug.analyses.activations.report import ActivationData, ActivationRow, activation_report
from fxdebug.api.files import load
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, target_of
from fxdebug.api.trace import Trace
from fxdebug.capture.runs.activation_runs import run_with_activations
from fxdebug.capture.runs.same_start import state_restored
from fxdebug.capture.torch_state.module_members import modules_of, named_modules_of
from fxdebug.data.calls import Note
from fxdebug.errors import UsageError, first_line
from fxdebug.exports import registry
from fxdebug.operators.activation_functions import BOUNDS, function_of
from fxdebug.operators.units import Origin, origin_of
from fxdebug.query.names import parameters_by_module
from fxdebug.stats.cpu_sums import shaped_array_of
from fxdebug.stats.distribution import Distributions, as_numpy, robust_outliers
from fxdebug.stats.doubles import where_doubles
from fxdebug.stats.elements import elements, is_dense
from fxdebug.stats.units import UnitSums

ODD = 10.0  # robust deviations of a bias below the others of its layer


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
    gathered = _Gathered(limits)
    if isinstance(model, Trace):
        notes = _of_trace(model, gathered)
        return _report(model.model, gathered, limits, 1, notes)
    module, target, _ = target_of(model, "forward")
    notes, count = _of_model(module, target, [inputs] if batches is None else batches, kwargs, gathered)
    return _report(type(module).__name__, gathered, limits, count, notes)


def units_on(
    model: nn.Module, batches: Iterable[Any], kwargs: Mapping[str, Any] | None
) -> tuple[list[Activation], list[Note]]:
    """Run a model on each batch and return what its modules and activation functions returned, with notes."""
    gathered = _Gathered(ActivationLimits())
    notes, _ = _of_model(model, model, batches, kwargs, gathered)
    return gathered.activations(type(model).__name__), notes


def _of_model(
    module: nn.Module,
    target: Callable[..., Any],
    batches: Iterable[Any],
    kwargs: Mapping[str, Any] | None,
    gathered: _Gathered,
) -> tuple[list[Note], int]:
    given = (arguments(batch, kwargs) for batch in batches)
    with state_restored(module):
        notes, count, read = run_with_activations(target, module, given, gathered.add)
    gathered.read = {f"{path}/{name}" if name else path for path, name in read}
    gathered.untrained = _is_untrained(module)
    gathered.odd = {path: odd for path, inner in named_modules_of(module) if (odd := _odd_biases(inner)) is not None}
    return notes, count


class _Gathered:
    """Gathers the numbers of each module and activation function, over calls and batches."""

    def __init__(self, limits: ActivationLimits) -> None:
        self._limits = limits
        self.read: set[str] = set()  # ids of activation functions whose results weights read
        self.untrained = False
        self.odd: dict[str, npt.NDArray[np.bool_]] = {}  # by the path of the module: units with a bias far below
        self._of: dict[tuple[str, str], tuple[str, str, str, tuple[int, ...], Distributions, UnitSums]] = {}
        self._outliers: dict[tuple[str, str], tuple[int, float] | None] = {}

    def add(self, path: str, kind: str, name: str, result: Tensor, given: Tensor | None, origin: Origin) -> None:
        """Add one result; ``name`` is that of an activation function in a forward.

        A function that a model uses behind several layers has units of each.
        """
        if not (result.is_floating_point() or result.is_complex()) or not result.numel():
            return
        function = function_of(kind)
        id = (f"{path}/{name}" if name else path, origin.maker if function else "")
        if id not in self._of:
            self._of[id] = (path, kind, function, tuple(result.shape), Distributions(), UnitSums())
            self._outliers[id] = (0, 0.0)
        *_, seen, units = self._of[id]
        ordered = seen.add(as_numpy(result))
        before = None if given is None or _is_in_place(given, result) else given
        units.add(result, before if function else None, BOUNDS.get(function), origin.axis)
        known, found = self._outliers[id], robust_outliers(ordered, self._limits.outlier)
        both = known is not None and found is not None
        self._outliers[id] = (known[0] + found[0], max(known[1], found[1])) if both else None  # type: ignore[index]

    def activations(self, model: str) -> list[Activation]:
        """Return what was gathered, in the order in which the calls returned."""
        found = []
        times = Counter(id for id, _ in self._of)
        for (id, maker), (path, kind, function, shape, seen, units) in self._of.items():
            behind = f"({maker or '…'})" if times[id] > 1 else ""
            found.append(
                Activation(
                    id=(id if path else f"{model}{id}") + behind,
                    path=path,
                    type=kind,
                    function=function,
                    shape=shape,
                    distribution=seen.result(),
                    units=units.result(),
                    outliers=self._outliers[id, maker],
                    maker=maker,
                    read_by_weights=id in self.read,
                    odd=self.odd.get(maker),
                    untrained=self.untrained,
                )
            )
        return found


def _is_untrained(model: nn.Module) -> bool:
    """Do all weights of linear layers and convolutions lie within ±1/√fan_in, from which torch draws them?"""
    layers = [
        module for module in modules_of(model) if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))
    ]
    found = [layer._parameters.get("weight") for layer in layers]  # a parametrization computes where it is asked
    weights = [weight for weight in found if type(weight) is nn.Parameter and weight.numel()]
    return bool(weights) and not any(
        weight.is_meta or float(weight.detach().abs().max()) > 1.00001 / math.sqrt(weight[0].numel())
        for weight in weights
    )


def _odd_biases(module: nn.Module) -> npt.NDArray[np.bool_] | None:
    """Return the units whose bias lies far below the others, by median and median absolute deviation."""
    bias = module._parameters.get("bias")
    if type(bias) is not nn.Parameter or bias.dim() != 1 or bias.is_meta or not bias.is_floating_point():
        return None
    numbers = shaped_array_of(bias.detach().double())
    middle = np.median(numbers)
    below, deviation = middle - numbers, np.median(np.abs(numbers - middle))
    return np.asarray((below > 0) & (0.6745 * below > ODD * deviation))


def _is_in_place(given: Tensor, result: Tensor) -> bool:
    """Has a result been written over what was given? A sparse or nested tensor has no one place in memory."""
    return is_dense(given) and is_dense(result) and given.data_ptr() == result.data_ptr()


def _report(
    model: str, gathered: _Gathered, limits: ActivationLimits, batches: int, notes: list[Note]
) -> ActivationReport:
    data = activation_report(model, gathered.activations(model), limits=limits, batches=batches, notes=notes)
    report = ActivationReport.of(data)
    assert isinstance(report, ActivationReport)
    return report


def _of_trace(trace: Trace, gathered: _Gathered) -> list[Note]:
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
