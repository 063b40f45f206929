"""The command ``profile``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.parts import attach, chosen_model, loss_of, partial_shown, saved_run, show_report
from fxdebug.plugins.command import ATTACH, BACKWARD, GRAD, MODEL, RANK, REPORT, Command, argument, integer_from


def profile(options: argparse.Namespace) -> int:
    """Time a model per call and operation, in runs that are not traced."""
    import torch

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad), partial_shown():
        run = saved_run(model, inputs, options)
        report = api.profile(model, inputs, repeats=options.repeats, loss=loss_of(options), tried=options.tried)
    status = show_report(report, options)
    attach(run, [report], options)
    return status


COMMANDS = (
    Command(
        profile,
        (
            *MODEL,
            argument(
                "--repeats",
                type=integer_from(1),
                default=20,
                metavar="N",
                help="timed runs (default: 20)",
            ),
            argument(
                "--try",
                dest="tried",
                action="store_true",
                help="also try what the findings advise, on a copy: keep it with its gain, or withdraw it",
            ),
            BACKWARD,
            GRAD,
            *ATTACH,
            *REPORT,
            RANK,
        ),
        place=150,
    ),
)
