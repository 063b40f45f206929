"""The command ``watch``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.parts import show_report
from fxdebug.plugins.command import RANK, REPORT, Command, argument


def watch(options: argparse.Namespace) -> int:
    """Report a training that was watched by fxdebug.watch, also one that still goes on."""
    return show_report(api.watched_training(options.folder, options.rank), options)


COMMANDS = (
    Command(
        watch,
        (
            argument("folder", metavar="DIR", help="the folder that fxdebug.watch(..., save=DIR) writes"),
            *REPORT,
            RANK,
        ),
        place=180,
    ),
)
