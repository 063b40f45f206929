"""The command ``resumes``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.load_model import function_of
from fxdebug.api.commands.parts import show_report
from fxdebug.plugins.command import REPORT, Command, argument, integer_from


def resumes(options: argparse.Namespace) -> int:
    """Train with and without saving and loading in between, and report what is lost."""
    return show_report(api.resumes(function_of(options.make), steps=options.steps), options)


COMMANDS = (
    Command(
        resumes,
        (
            argument("make", metavar="FILE.py:make", help="a function that returns (step, save, load)"),
            argument("--steps", type=integer_from(1), default=3, metavar="N", help="steps before and after loading"),
            *REPORT,
        ),
        place=175,
    ),
)
