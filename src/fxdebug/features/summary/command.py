"""The command ``summary``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.parts import attach, run_of, show_report
from fxdebug.plugins.command import GRAD, KEEP, MODEL_OR_RUN, RANK, REPORT, Command


def summary(options: argparse.Namespace) -> int:
    """List the calls of a model or of a saved run with shapes, parameters and multiply-adds."""
    run = run_of(options)
    status = show_report(api.summary(run), options)
    if options.save:
        attach(run, [api.flops(run)], options)
    return status


COMMANDS = (Command(summary, (*MODEL_OR_RUN, GRAD, KEEP, *REPORT, RANK), place=140),)
