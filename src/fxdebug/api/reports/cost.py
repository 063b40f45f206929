"""The cost of a run: ``flops``, ``profile``, ``memory``, ``summary``."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor, nn

from fxdebug.analyses.cost import flops as flops_of_run
from fxdebug.analyses.cost.flops import FlopsRow
from fxdebug.analyses.cost.memory import MemoryRow, memory_report
from fxdebug.analyses.cost.memory_estimate import estimated_peak, measured_peak
from fxdebug.analyses.cost.profile import Items, ProfileRow, items_of, profile_report, profiles
from fxdebug.analyses.cost.profile_rules import Limits, findings_of
from fxdebug.analyses.cost.summary import SummaryRow, summary_report
from fxdebug.api.files import load
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, fx_debug, last_failed
from fxdebug.api.trace import Trace
from fxdebug.capture.probes.machine_peak import machine_peak
from fxdebug.capture.runs.memory_of_others import OtherSizes
from fxdebug.capture.runs.memory_runs import run_with_memory
from fxdebug.capture.runs.same_start import copied_inputs, state_restored
from fxdebug.capture.runs.timed_runs import TimedRuns
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.capture.torch_state.module_members import named_modules_of, parameters_of
from fxdebug.data.calls import Note
from fxdebug.data.measured.timings import Timings
from fxdebug.data.measures import Unit, quantity
from fxdebug.data.report import Cell, ReportData
from fxdebug.errors import UsageError
from fxdebug.operators.dtypes import bytes_of

Row = TypeVar("Row")
ON_META = "the model is on the meta device, where nothing is computed"

_last_failed: Report[ProfileRow | MemoryRow] | None = None


def flops(
    model: nn.Module | Trace | str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Report[FlopsRow]:
    """Count the floating point operations of a run, per call and operation.

    ``model`` is a run, a trace or the folder of one, of which the model is not needed; or a module, which is run once.
    Counted are multiplications and additions of products (matrix products, convolutions, attention, recurrent layers):
    a product of an m×k with a k×n matrix has 2·m·k·n, as in ``torch.utils.flop_counter``. Operations whose number is
    not known are listed, not counted as 0. The backward is counted where the run asked for gradients.
    A module that was run is afterwards as it was: gradients, buffers, flags, attributes and random generators.
    Raises ``UsageError`` for a run without graphs and ``LoadError`` for a path that is no run, and passes on exceptions
    of the model.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(4, 3), torch.ones(2, 4))
    >>> print(fxdebug.flops(trace).text(width=60, color=False))
    flops of Linear
    forward        48 FLOP
    multiply-adds  24 MAC
    backward       48 FLOP
    call   type      self share forward backward
    Linear Linear 48 FLOP 100 % 48 FLOP  48 FLOP
    """
    return _of_run(flops_of_run.flops_report, model, inputs, kwargs)


def _of_run(
    analyse: Callable[[Trace], ReportData[Row]],
    model: nn.Module | Trace | str | os.PathLike[str],
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
) -> Report[Row]:
    """Return the report on a run: the given one, that in a folder, or that of a model, which is run and put back."""
    if not isinstance(model, nn.Module):
        return Report.of(analyse(model if isinstance(model, Trace) else load(model)))
    with state_restored(model):
        return Report.of(analyse(fx_debug(model, *copied_inputs((inputs, kwargs)))))


def profile(
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    repeats: int = 20,
    warmup: int = 3,
    items: tuple[int, str] | None = None,
    peak: bool = True,
    limits: Limits | None = None,
) -> Report[ProfileRow]:
    """Time a model: every call and operation, forward, and backward where ``loss`` is given.

    The model runs once traced, to know what it computes, and then ``warmup + 3 · repeats`` times without a trace, from
    the same random numbers, buffers and inputs: plainly, with calls timed, with operations timed. Times are in
    seconds, medians of the repeats; that of a call with all calls in it is the sum of theirs. ``loss`` makes of the
    output the scalar to differentiate. ``items`` is the number of items of one run and their unit, such as
    ``(64, "tokens")``, where they are not those inferred from the inputs. ``peak=False`` does not measure the machine's
    peak (0.2 s, once), and so does not say what bounds a call. ``limits`` are the thresholds of the findings
    (:class:`fxdebug.analyses.cost.profile_rules.Limits`).
    Afterwards parameters, gradients, buffers and random generators are as before. A model on the meta device has
    operations and bytes, and no times.
    Raises ``UsageError`` for a loss that is no scalar. An exception of the model or of the loss is passed on;
    :func:`last_failed_report` then has what was measured until then.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    >>> report = fxdebug.profile(model, torch.ones(8, 64), repeats=3, peak=False)
    >>> sorted(row.call for row in report.rows), report.parts[0].rows[0].count
    (['0#0', '1#0', 'Sequential#0'], 1)
    """
    if repeats < 1 or warmup < 0:
        raise UsageError(f"repeats={repeats}, warmup={warmup}: at least one repeat, and no negative number")
    args, keywords = arguments(inputs, kwargs)
    runs = TimedRuns(model, model, args, keywords, loss)
    on_meta = runs.device.type == "meta"
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None):
        trace, raised = _traced(model, runs)
        timings = Timings(missing=ON_META)
        if not on_meta:
            timings, stopped = runs.run(repeats, warmup) if raised is None else runs.run(1, 0)
            raised = raised or stopped
    dtype = next((p.dtype for p in parameters_of(model) if p.dtype.is_floating_point), torch.float32)

    def report() -> Report[ProfileRow]:
        calls = profiles(trace, timings)
        data = profile_report(
            trace,
            timings,
            calls,
            peak=machine_peak(runs.device, dtype) if peak and not on_meta else None,
            settings={
                "repeats": repeats,
                "device": str(runs.device),
                "dtype": str(dtype)[6:],
                "threads": torch.get_num_threads(),
            },
            items=items_of(trace) if items is None else Items(*items),
            findings=findings_of(
                trace, calls, Limits() if limits is None else limits, min(timings.plain, default=math.inf) / 1e9
            ),
        )
        return Report.of(data)

    if raised is not None:
        _remember(report)
        raise raised
    return report()


def _traced(model: nn.Module, runs: TimedRuns) -> tuple[Trace, Exception | None]:
    """Run a model once traced; return the trace, of the run until then where the model raised, and its exception."""
    before = last_failed()
    try:
        with runs.unchanged():
            return fx_debug(model, *runs.inputs()), None
    except Exception as error:
        trace = last_failed()
        if trace is None or trace is before:
            raise
        return trace, error


def _remember(report: Callable[[], Report[ProfileRow | MemoryRow]]) -> None:
    """Keep the report of a run that raised; if it cannot be made, the exception of the model is all there is."""
    global _last_failed
    _last_failed = None
    with contextlib.suppress(Exception):
        _last_failed = report()


def last_failed_report() -> Report[ProfileRow | MemoryRow] | None:
    """Return what ``profile`` or ``memory`` had measured when the model last raised in one of them, or ``None``.

    >>> import torch, fxdebug
    >>> try:
    ...     fxdebug.memory(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)), torch.ones(1, 2))
    ... except RuntimeError:
    ...     print([row.call for row in fxdebug.last_failed_report().rows])
    ['0#0', 'Sequential#0', '1#0']
    """
    return _last_failed


class Other(TypedDict, total=False):
    """Another batch size, or another dtype, to estimate the memory for."""

    batch: int
    dtype: torch.dtype


def memory(
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    steps: int = 1,
    estimate: Other | None = None,
) -> Report[MemoryRow]:
    """Follow the memory of a run: bytes of every call by their use, the peak and what was alive then, leaks.

    Sizes are bytes of storages as torch asks for them, parameters and inputs included; memory inside of a kernel is
    not seen. With ``loss``, which makes of the output the scalar to differentiate, the backward is followed too. With
    ``steps`` of 3 or more, memory that stays after each step is a finding, with what refers to it. ``estimate``, such
    as ``{"batch": 32, "dtype": torch.bfloat16}``, also estimates the peak of such a run, from a second run with another
    batch, and states the error that the same estimate has for a third run; the batch is the first size of the first
    tensor. Afterwards parameters, gradients, buffers and random generators are as before; what the model keeps of its
    own accord stays.
    Raises ``UsageError`` for a loss that is no scalar. An exception of the model or of the loss is passed on;
    :func:`last_failed_report` then has what was measured until then.

    >>> import torch, fxdebug
    >>> report = fxdebug.memory(torch.nn.Linear(4, 3), torch.ones(2, 4), estimate={"batch": 100})
    >>> report.totals["peak"], report.rows[0].outputs  # 15 parameters, 8 inputs, 6 outputs, 4 bytes each
    ((116, 'B'), 24)
    >>> report.totals["estimate for batch 100"], report.totals["error of the estimate"]
    ((2860, 'B'), (0.0, '%'))
    """
    if steps < 1:
        raise UsageError(f"steps={steps}: at least one")
    if estimate is not None and (estimate.keys() - {"batch", "dtype"} or estimate.get("batch", 1) < 1):
        raise UsageError(f"estimate={estimate!r}: give a batch of at least 1, a dtype, or both")
    args, keywords = arguments(inputs, kwargs)
    runs = TimedRuns(model, model, args, keywords, loss)
    estimated: dict[str, tuple[Cell, Unit]] = {}
    notes: list[Note] = []
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None), runs.unchanged():
        record, raised = run_with_memory(model, args, keywords, loss, steps)
        if estimate is not None and raised is None:
            others = OtherSizes(model, args, keywords, loss)
            try:
                estimated, told = _estimated(others, estimate)
            except UsageError as error:
                told = f"n/a, {error}"
            notes.append(Note(f"estimate: {told}"))
    types = {path: type(module).__name__ for path, module in named_modules_of(model)}
    settings: dict[str, Cell] = {
        "steps": steps,
        "device": str(runs.device),
        "backward": loss is not None,
    }

    def report() -> Report[MemoryRow]:
        return Report.of(memory_report(record, type(model).__name__, types, settings, estimated, notes))

    if raised is not None:
        _remember(report)
        raise raised
    return report()


def _estimated(others: OtherSizes, wanted: Other) -> tuple[dict[str, tuple[Cell, Unit]], str]:
    """Return the estimated peak for another batch or dtype, its error in a run of a third size, and a note on that."""
    dtype, batch, own = wanted.get("dtype"), wanted.get("batch"), others.batch
    if batch is not None and own is None:
        raise UsageError("no input has a batch: there is no tensor with a first size")
    sizes, checked = [own or 0], own or 0
    if batch is not None and own is not None:
        sizes = [2, 4] if own == 1 else [own, own // 2 if own > 3 else 2 * own]  # 1 is special: sizes of 1 go away
        checked = sum(sizes)
    known = [(size, others.run(size or None)) for size in sizes]
    sizes_of_dtypes = {name: bytes_of(name, ()) for name in others.dtypes()}
    scale = {} if dtype is None else {name: dtype.itemsize / size for name, size in sizes_of_dtypes.items() if size}
    peak = estimated_peak(known, batch or sizes[0], scale)
    guess, truth = estimated_peak(known, checked, scale), measured_peak(others.run(checked or None, dtype))
    words = [f"batch {batch}"] * (batch is not None) + [str(dtype)[6:]] * (dtype is not None)
    totals: dict[str, tuple[Cell, Unit]] = {
        f"estimate for {', '.join(words)}": (peak, "B"),
        "error of the estimate": (100 * (guess / truth - 1) if truth else None, "%"),
    }
    where = f"batch {checked}" + (f" in {str(dtype)[6:]}" if dtype is not None else "")
    return totals, f"checked in a run with {where}: {quantity(guess, 'B')} estimated, {quantity(truth, 'B')} measured"


def summary(
    model: nn.Module | Trace | str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Report[SummaryRow]:
    """List the calls of a run with shapes, parameters, multiply-adds and sizes, as torchinfo does.

    ``model`` is a module, which is run once, or a run: a trace or the folder of one. Repeated layers are one line on
    the screen, with their numbers summed; parameters that several modules share count once.
    A module that was run is afterwards as it was: gradients, buffers, flags, attributes and random generators.
    Raises ``LoadError`` for a path that is no run, and passes on exceptions of the model.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> [(row.call, row.params, row.macs) for row in fxdebug.summary(model, torch.ones(2, 4)).rows]
    [('Sequential#0', 15, 24), ('0#0', 15, 24), ('1#0', 0, 0)]
    """
    return _of_run(summary_report, model, inputs, kwargs)


def mean_of_output(output: Any) -> Tensor:
    """Return the mean of the first floating tensor in what a model returned: a loss where no other is known.

    Raises ``UsageError`` where there is none.

    >>> import torch
    >>> mean_of_output({"ids": torch.ones(2, dtype=torch.long), "scores": torch.tensor([1.0, 3.0])})
    tensor(2.)
    """
    for _, tensor in named_tensors(output):
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor.abs().mean() if tensor.is_complex() else tensor.mean()
    raise UsageError("the model returned no floating tensor: there is no backward")
