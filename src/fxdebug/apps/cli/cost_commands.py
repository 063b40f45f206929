"""The commands about cost: flops, summary, profile, memory; the first docstring line is the help text."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug import api
from fxdebug.apps.cli.commands import FAILED, OK, chosen_model, form_of, load_run
from fxdebug.apps.cli.measure_commands import attach, saved_run
from fxdebug.errors import FxDebugError, UsageError

if TYPE_CHECKING:
    from fxdebug.api import Report, Trace
    from fxdebug.api.reports.cost import Other

PICTURES = (".png", ".svg", ".pdf")


def flops(options: argparse.Namespace) -> int:
    """Count the floating point operations of a model or of a saved run, per call."""
    run = _run_of(options)
    report = api.flops(run)
    status = show_report(report, options)
    attach(run if options.save else None, [report], options)
    return status


def summary(options: argparse.Namespace) -> int:
    """List the calls of a model or of a saved run with shapes, parameters and multiply-adds."""
    run = _run_of(options)
    status = show_report(api.summary(run), options)
    if options.save:
        attach(run, [api.flops(run)], options)
    return status


def _run_of(options: argparse.Namespace) -> Trace:
    """Return a saved run, or that of a model which is run once; a folder is a run whatever its name."""
    target = options.target
    if target is not None and (Path(target).is_dir() or ":" not in target):
        if options.hf is not None:
            raise UsageError(f"give either the run {target} or --hf {options.hf}, not both")
        return load_run(target, options)
    if target is None and options.hf is None:
        raise UsageError("nothing to read: give the folder of a run, FILE.py:function, or --hf with a folder or name")
    if options.rank is not None:
        raise UsageError("--rank chooses one of the ranks of a saved run: a model is run in this process")
    import torch

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad):
        return api.fx_debug(model, inputs)


def profile(options: argparse.Namespace) -> int:
    """Time a model per call and operation, in runs that are not traced."""
    import torch

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad), _partial_shown():
        run = saved_run(model, inputs, options)
        report = api.profile(model, inputs, repeats=options.repeats, loss=_loss(options))
    status = show_report(report, options)
    attach(run, [report], options)
    return status


def memory(options: argparse.Namespace) -> int:
    """Follow the memory of a model: bytes per call, the peak and what was alive then, leaks over several steps."""
    import torch

    model, inputs = chosen_model(options)
    other: Other = {}
    if options.batch is not None:
        other["batch"] = options.batch
    if options.dtype is not None:
        dtype = getattr(torch, options.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(f"--dtype {options.dtype}: give the name of a dtype of torch, such as bfloat16")
        other["dtype"] = dtype
    with torch.set_grad_enabled(options.grad), _partial_shown():
        run = saved_run(model, inputs, options)
        report = api.memory(model, inputs, steps=options.steps, loss=_loss(options), estimate=other or None)
    status = show_report(report, options)
    attach(run, [report], options)
    return status


@contextlib.contextmanager
def _partial_shown() -> Iterator[None]:
    """Print what was measured until the model raised, before its exception goes on."""
    try:
        yield
    except FxDebugError:
        raise
    except Exception:
        partial = api.last_failed_report()
        if partial is not None:
            print(partial.text())
        raise


def _loss(options: argparse.Namespace) -> Any:
    """Return the loss of ``--backward``: the mean of the first floating tensor that the model returns."""
    return api.mean_of_output if options.backward else None


def show_report(report: Report[Any], options: argparse.Namespace) -> int:
    """Print a report in the form that was asked for, and write it to a file; the status is that of ``--fail-on``.

    With ``--against`` it is compared with an earlier one, and the file holds the report itself.
    """
    form, made = form_of(options), report
    if options.against is not None:
        report = report.compare(options.against)
    if form == "json":
        print(report.json_text(), end="")
    elif form == "csv":
        print(report.csv_text(), end="")
    else:
        print(report.text(rows=None if options.all else options.rows))
    if options.output:
        path = Path(options.output)
        written = made.plot(path) if path.suffix.lower() in PICTURES else made.export(path)
        if form == "text":
            print(f"\nwrote {written}")
    return FAILED if api.fails(report.findings, options.fail_on, report.analysis) else OK
