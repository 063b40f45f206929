"""The cost of a run: ``flops``, ``profile``, ``memory``, ``summary``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.analyses import flops as flops_of_run
from fxdebug.analyses.flops import FlopsRow
from fxdebug.analyses.memory import MemoryRow, memory_report
from fxdebug.analyses.profile import Items, ProfileRow, items_of, profile_report, profiles
from fxdebug.analyses.profile_rules import Limits, findings_of
from fxdebug.analyses.summary import SummaryRow, summary_report
from fxdebug.api.files import load
from fxdebug.api.report import Report
from fxdebug.api.run_model import arguments, fx_debug
from fxdebug.api.trace import Trace
from fxdebug.capture.probes.machine_peak import machine_peak
from fxdebug.capture.runs.memory_runs import named_tensors, run_with_memory
from fxdebug.capture.runs.timed_runs import TimedRuns
from fxdebug.data.report import Cell
from fxdebug.errors import UsageError


def flops(trace: Trace | str | os.PathLike[str]) -> Report[FlopsRow]:
    """Count the floating point operations of a run, per call and operation; the model is not needed.

    Counted are multiplications and additions of products (matrix products, convolutions, attention, recurrent layers):
    a product of an m×k with a k×n matrix has 2·m·k·n, as in ``torch.utils.flop_counter``. Operations whose number is
    not known are listed, not counted as 0. The backward is counted where the run asked for gradients.
    Raises ``UsageError`` for a run without graphs and ``LoadError`` for a path that is no run.

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
    return Report.of(flops_of_run.flops_report(trace if isinstance(trace, Trace) else load(trace)))


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
    seconds, means over the middle half of the repeats. ``loss`` makes of the output the scalar to differentiate.
    ``items`` is the number of items of one run and their unit, such as ``(64, "tokens")``, where they are not those
    inferred from the inputs. ``peak=False`` does not measure the machine's peak (0.1 s, once), and so does not say what
    bounds a call. ``limits`` are the thresholds of the findings (:class:`fxdebug.analyses.profile_rules.Limits`).
    Afterwards parameters, gradients, buffers and random generators are as before.
    Raises ``UsageError`` for a loss that is no scalar, and passes on exceptions of the model.

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
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None):
        with runs.unchanged():
            trace = fx_debug(model, *runs.inputs())
        timings = runs.run(repeats, warmup)
    dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), torch.float32)
    settings = {
        "repeats": repeats,
        "device": str(runs.device),
        "dtype": str(dtype)[6:],
        "threads": torch.get_num_threads(),
    }
    calls = profiles(trace, timings)
    data = profile_report(
        trace,
        timings,
        calls,
        peak=machine_peak(runs.device, dtype) if peak else None,
        settings=settings,
        items=items_of(trace) if items is None else Items(*items),
        findings=findings_of(trace, calls, Limits() if limits is None else limits),
    )
    return Report.of(data)


def memory(
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    steps: int = 1,
) -> Report[MemoryRow]:
    """Follow the memory of a run: bytes of every call by their use, the peak and what was alive then, leaks.

    Sizes are bytes of storages as torch asks for them, parameters and inputs included; memory inside of a kernel is
    not seen. With ``loss``, which makes of the output the scalar to differentiate, the backward is followed too. With
    ``steps`` of 3 or more, memory that stays after each step is a finding, with what refers to it. Afterwards
    parameters, gradients, buffers and random generators are as before; what the model keeps of its own accord stays.
    Raises ``UsageError`` for a loss that is no scalar, and passes on exceptions of the model.

    >>> import torch, fxdebug
    >>> report = fxdebug.memory(torch.nn.Linear(4, 3), torch.ones(2, 4))
    >>> report.totals["peak"], report.rows[0].outputs  # 15 parameters, 8 inputs, 6 outputs, 4 bytes each
    ((116, 'B'), 24)
    """
    if steps < 1:
        raise UsageError(f"steps={steps}: at least one")
    args, keywords = arguments(inputs, kwargs)
    runs = TimedRuns(model, model, args, keywords, loss)
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None), runs.unchanged():
        record, raised = run_with_memory(model, args, keywords, loss, steps)
    if raised is not None:
        raise raised
    types = {path: type(module).__name__ for path, module in model.named_modules()}
    settings: dict[str, Cell] = {
        "steps": steps,
        "device": str(runs.device),
        "backward": loss is not None,
    }
    return Report.of(memory_report(record, type(model).__name__, types, settings))


def summary(
    model: nn.Module | Trace | str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Report[SummaryRow]:
    """List the calls of a run with shapes, parameters, multiply-adds and sizes, as torchinfo does.

    ``model`` is a module, which is run once, or a run: a trace or the folder of one. Repeated layers are one line on
    the screen, with their numbers summed. Parameters that several modules share count once in the totals.
    Raises ``LoadError`` for a path that is no run, and passes on exceptions of the model.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> [(row.call, row.params, row.macs) for row in fxdebug.summary(model, torch.ones(2, 4)).rows]
    [('Sequential#0', 15, 24), ('0#0', 15, 24), ('1#0', 0, 0)]
    """
    if isinstance(model, nn.Module):
        trace = fx_debug(model, inputs, kwargs)
    else:
        trace = model if isinstance(model, Trace) else load(model)
    return Report.of(summary_report(trace))


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
