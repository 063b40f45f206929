"""The commands about cost: flops, summary, profile, memory; the first docstring line is the help text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug import api
from fxdebug.apps.cli.commands import FAILED, OK, chosen_model, form_of, load_run

if TYPE_CHECKING:
    from fxdebug.api import Report

PICTURES = (".png", ".svg", ".pdf")


def flops(options: argparse.Namespace) -> int:
    """Count the floating point operations of a saved run, per call."""
    return _shown(api.flops(load_run(options.run, options)), options)


def summary(options: argparse.Namespace) -> int:
    """List the calls of a saved run with shapes, parameters and multiply-adds."""
    return _shown(api.summary(load_run(options.run, options)), options)


def profile(options: argparse.Namespace) -> int:
    """Time a model per call and operation, in runs that are not traced."""
    import torch

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad):
        return _shown(api.profile(model, inputs, repeats=options.repeats, loss=_loss(options)), options)


def memory(options: argparse.Namespace) -> int:
    """Follow the memory of a model: bytes per call, the peak and what was alive then, leaks over several steps."""
    import torch

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad):
        return _shown(api.memory(model, inputs, steps=options.steps, loss=_loss(options)), options)


def _loss(options: argparse.Namespace) -> Any:
    """Return the loss of ``--backward``: the mean of the first floating tensor that the model returns."""
    return api.mean_of_output if options.backward else None


def _shown(report: Report[Any], options: argparse.Namespace) -> int:
    """Print a report in the form that was asked for, and write it to a file; status 1: there are findings."""
    form = form_of(options)
    if form == "json":
        print(report.json_text(), end="")
    elif form == "csv":
        print(report.csv_text(), end="")
    else:
        print(report.text(rows=None if options.all else options.rows))
    if options.output:
        path = Path(options.output)
        written = report.plot(path) if path.suffix.lower() in PICTURES else report.export(path)
        if form == "text":
            print(f"\nwrote {written}")
    return FAILED if report.findings else OK
