"""The command ``memory``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.api.commands.parts import attach, chosen_model, loss_of, partial_shown, saved_run, show_report
from fxdebug.errors import UsageError
from fxdebug.plugins.command import ATTACH, BACKWARD, GRAD, MODEL, RANK, REPORT, Command, argument, integer_from

if TYPE_CHECKING:
    from fxdebug.features.memory.run import Other


_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def size(text: str) -> int:
    """Return the bytes of a size such as ``2GiB`` or ``512MiB``.

    >>> size("1.5 KiB")
    1536
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes, or a number with KiB, MiB, GiB or TiB")
    return round(float(found[1]) * _UNITS[found[2].lower()])


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
            model,
            inputs,
            steps=options.steps,
            loss=loss_of(options),
            estimate=other or None,
            limit=options.limit,
            tried=options.tried,
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
                "--limit",
                type=size,
                metavar="SIZE",
                help="let the run end above this size, such as 2GiB: what asks for too much, and what would fit",
            ),
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
