"""The command ``memory``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.api.commands.parts import attach, chosen_model, loss_of, partial_shown, saved_run, show_report
from fxdebug.errors import UsageError
from fxdebug.plugins.command import ATTACH, BACKWARD, GRAD, MODEL, RANK, REPORT, Command, argument, integer_from

if TYPE_CHECKING:
    from fxdebug.features.memory.run import Other


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
    with torch.set_grad_enabled(options.grad), partial_shown():
        run = saved_run(model, inputs, options)
        report = api.memory(
            model, inputs, steps=options.steps, loss=loss_of(options), estimate=other or None, tried=options.tried
        )
    status = show_report(report, options)
    attach(run, [report], options)
    return status


COMMANDS = (
    Command(
        memory,
        (
            *MODEL,
            argument(
                "--steps", type=integer_from(1), default=1, metavar="N", help="equal steps, to find leaks (default: 1)"
            ),
            argument(
                "--batch", type=integer_from(1), metavar="N", help="also estimate the peak for a batch of this size"
            ),
            argument("--dtype", metavar="NAME", help="also estimate the peak in this dtype, such as bfloat16"),
            argument(
                "--try",
                dest="tried",
                action="store_true",
                help="also try what makes the peak smaller, on a copy: keep it, or withdraw it",
            ),
            BACKWARD,
            GRAD,
            *ATTACH,
            *REPORT,
            RANK,
        ),
        place=160,
    ),
)
