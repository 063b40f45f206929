"""The commands ``watch`` and ``learn``; the first line of a docstring is its help."""

from __future__ import annotations

import argparse
from pathlib import Path

from fxdebug import api
from fxdebug.api.commands.parts import FAILED, OK, show_report
from fxdebug.features.training.report import verdict_of
from fxdebug.features.training.saved.training_file import read_ranks
from fxdebug.features.training.script.start import start
from fxdebug.features.training.verdict.text import verdict_json, verdict_text
from fxdebug.plugins.command import RANK, REPORT, WIDTH, Command, argument


def watch(options: argparse.Namespace) -> int:
    """Report a training that was watched, also one that still goes on; or run a script and watch what it trains."""
    target = Path(options.folder)
    if target.suffix == ".py":
        return start(target, options.arguments, Path(options.save), options.tries)
    if options.arguments:  # those behind a folder are ours
        rest = argparse.ArgumentParser(prog="fxdebug watch")
        for one in (*REPORT, RANK):
            rest.add_argument(*one.flags, **one.options)
        rest.parse_args(options.arguments, namespace=options)
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
            *REPORT,
            RANK,
            argument(
                "--try",
                dest="tries",
                type=float,
                default=0.0,
                metavar="SECONDS",
                help="of a script: try the advised change at the end, on a copy, for at most so long",
            ),
            argument("--save", metavar="FOLDER", default="runs/train", help="where a script's training is written"),
            argument(
                "folder",
                metavar="DIR|SCRIPT.py",
                help="the folder that fxdebug.watch(..., save=DIR) writes, or a script that trains",
            ),
            argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments"),
        ),
        place=180,
    ),
)
