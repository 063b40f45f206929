"""The command ``flops``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.parts import attach, run_of, show_report
from fxdebug.plugins.command import GRAD, KEEP, MODEL_OR_RUN, RANK, REPORT, Command


def flops(options: argparse.Namespace) -> int:
    """Count the floating point operations of a model or of a saved run, per call."""
    run = run_of(options)
    report = api.flops(run)
    status = show_report(report, options)
    attach(run if options.save else None, [report], options)
    return status


COMMANDS = (Command(flops, (*MODEL_OR_RUN, GRAD, KEEP, *REPORT, RANK), place=130),)
