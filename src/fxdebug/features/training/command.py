"""The commands ``watch`` and ``learn``; the first line of a docstring is its help."""

from __future__ import annotations

import argparse
from pathlib import Path

from fxdebug import api
from fxdebug.api.commands.parts import FAILED, OK, show_report
from fxdebug.features.training.report import verdict_of
from fxdebug.features.training.verdict.text import verdict_json, verdict_text
from fxdebug.plugins.command import RANK, REPORT, WIDTH, Command, argument
from fxdebug.store.training_file import read_ranks


def watch(options: argparse.Namespace) -> int:
    """Report a training that was watched by fxdebug.watch, also one that still goes on."""
    return show_report(api.watched_training(options.folder, options.rank), options)


def learn(options: argparse.Namespace) -> int:
    """Say whether a training that was watched learns, and if not, why; exit status 1 where something is at fault."""
    record, *others = read_ranks(Path(options.folder), options.rank)
    verdict = verdict_of(record, others)
    if options.json:
        print(verdict_json(verdict))
    else:
        print(verdict_text(verdict, options.width))
    return FAILED if verdict.state == "fault" else OK


COMMANDS = (
    Command(
        learn,
        (
            argument("folder", metavar="DIR", help="the folder that fxdebug.watch(..., save=DIR) writes"),
            argument("--json", action="store_true", help="print JSON"),
            WIDTH,
            RANK,
        ),
        place=181,
    ),
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
