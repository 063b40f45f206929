"""The commands ``watch`` and ``learn``; the first line of a docstring is its help."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from fxdebug import api
from fxdebug.api.commands.parts import FAILED, OK, show_report
from fxdebug.errors import UsageError
from fxdebug.features.training.report import verdict_of
from fxdebug.features.training.saved.training_file import read_ranks
from fxdebug.features.training.script.start import start
from fxdebug.features.training.verdict.text import verdict_json, verdict_text
from fxdebug.plugins.command import RANK, REPORT, WIDTH, Argument, Command, argument


def watch(options: argparse.Namespace) -> int:
    """Report a training that was watched, also one that still goes on; or run a script and watch what it trains."""
    if (script := Path(options.folder)).suffix == ".py":
        return start(script, options.arguments, Path(options.save), options.tries)
    _parse_behind_folder(options, "watch", (*REPORT, RANK))
    return show_report(api.watched_training(options.folder, options.rank), options)


def learn(options: argparse.Namespace) -> int:
    """Say whether a training that was watched learns, and if not, why; exit status 1 where something is at fault."""
    if (script := Path(options.folder)).suffix == ".py":
        return start(script, options.arguments, Path(options.save), options.tries)
    _parse_behind_folder(options, "learn", _LEARN)
    record, *others = read_ranks(Path(options.folder), options.rank)
    if options.tries and not record.trials:
        raise UsageError(
            f"{options.folder} has no weights and no batches to try a change on: "
            f"`fxdebug learn --try {options.tries:g} SCRIPT.py ...` runs the script again, and tries it at the end"
        )
    verdict = verdict_of(record, others)
    if options.json:
        print(verdict_json(verdict))
    else:
        print(verdict_text(verdict, options.width))
    return FAILED if verdict.state == "fault" else OK


def _parse_behind_folder(options: argparse.Namespace, command: str, arguments: Iterable[Argument]) -> None:
    """Parse what stands behind a folder: those are our options, where behind a script they are its own."""
    if options.arguments:
        rest = argparse.ArgumentParser(prog=f"fxdebug {command}")
        for one in arguments:
            rest.add_argument(*one.flags, **one.options)
        rest.parse_args(options.arguments, namespace=options)


_TRY = argument(
    "--try",
    dest="tries",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="of a script: try the advised change at the end, on a copy, for at most so long",
)
_OF_SCRIPT = (
    argument("--save", metavar="FOLDER", default="runs/train", help="where a script's training is written"),
    argument(
        "folder",
        metavar="DIR|SCRIPT.py",
        help="the folder that fxdebug.watch(..., save=DIR) writes, or a script that trains",
    ),
    argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments"),
)
_LEARN = (argument("--json", action="store_true", help="print JSON"), WIDTH, RANK, _TRY)
COMMANDS = (
    Command(learn, (*_LEARN, *_OF_SCRIPT), place=181),
    Command(watch, (*REPORT, RANK, _TRY, *_OF_SCRIPT), place=180),
)
