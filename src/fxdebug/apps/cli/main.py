"""The parser of the command line, and the table of commands."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxdebug import api
from fxdebug.apps.cli.commands import OK, UNUSABLE, check, compare, find, graph, run, show
from fxdebug.errors import FxDebugError
from fxdebug.version import __version__

# The parser --------------------------------------------------------------------------------------


class Command(NamedTuple):
    """A function and what it takes: ``(flags, keyword arguments of add_argument)``."""

    function: Callable[[argparse.Namespace], int]
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]


_RUN = (("run",), {"metavar": "DIR", "help": "a folder written by fx_debug(..., save=DIR)"})
_RANK = (("--rank",), {"type": int, "metavar": "N", "help": "of a distributed run"})


def _integer_from(least: int) -> Callable[[str], int]:
    """What reads a whole number that is not below another one."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} on")
        return int(text)

    return read


_DEPTH = (("--depth",), {"type": _integer_from(0), "metavar": "N", "help": "levels below the model"})
_WIDTH = (("--width",), {"type": _integer_from(20), "metavar": "N", "help": "columns (default: the terminal's)"})

COMMANDS: tuple[Command, ...] = (
    Command(
        show,
        (
            _RUN,
            (("--all",), {"action": "store_true", "help": "every layer, repeated ones too"}),
            _DEPTH,
            _WIDTH,
            _RANK,
        ),
    ),
    Command(
        find,
        (
            _RUN,
            (("path",), {"nargs": "?", "metavar": "GLOB", "help": "over module paths, e.g. '*.attention.*'"}),
            (("--type",), {"metavar": "GLOB", "help": "over module classes"}),
            (("--ops",), {"metavar": "GLOB", "nargs": "?", "const": "*", "help": "operations instead of calls"}),
            (("--dtype",), {"metavar": "GLOB", "help": "of any output"}),
            (("--shape",), {"metavar": "SIZES", "help": "of any output, such as '2,*,384'"}),
            (("--status",), {"metavar": "STATUS", "help": "verified, recorded or opaque"}),
            (("--source",), {"metavar": "GLOB", "help": "over file.py:line"}),
            (("--where",), {"metavar": "LINE", "help": "about statistics, such as 'absmax > 100 or nan > 0'"}),
            _RANK,
        ),
    ),
    Command(
        check,
        (_RUN, (("--json",), {"action": "store_true", "help": "as JSON, for a program"}), _RANK),
    ),
    Command(
        graph,
        (
            _RUN,
            (
                ("-o", "--output"),
                {"default": "graph.svg", "metavar": "FILE", "help": ".svg .png .pdf .dot .graphml .json .html"},
            ),
            _DEPTH,
            (("--color",), {"metavar": "BY", "help": "status (default), absmax, std, zeros …"}),
            (("--rankdir",), {"metavar": "DIR", "help": "TB (default) or LR"}),
            (("--all",), {"action": "store_true", "help": "every layer, repeated ones too"}),
            (("--everything",), {"action": "store_true", "help": "sizes, parameters and the inside of leaves too"}),
            _RANK,
        ),
    ),
    Command(
        compare,
        (
            (("a",), {"metavar": "A", "help": "the reference: a saved run, or a tree transformers' debugger wrote"}),
            (("b",), {"metavar": "B", "help": "the suspect"}),
            (
                ("--map",),
                {"action": "append", "default": [], "metavar": "FILE|A=B", "help": "path globs of A, and in B"},
            ),
            (("--ignore",), {"action": "append", "default": [], "metavar": "GLOB", "help": "modules to leave out"}),
            (("--tolerance",), {"type": float, "metavar": "X", "help": "relative error that is allowed"}),
            (("--all",), {"action": "store_true", "help": "every finding and every call"}),
            (("-o", "--output"), {"metavar": "FILE", "help": "also write .svg .png .pdf .dot .csv .json .html .txt"}),
            _WIDTH,
            _RANK,
        ),
    ),
    Command(
        run,
        (
            (("target",), {"nargs": "?", "metavar": "FILE.py:factory", "help": "factory() returns (model, inputs)"}),
            (("--hf",), {"metavar": "DIR_OR_NAME", "help": "a transformers model with its tokenizer"}),
            (("--text",), {"action": "append", "metavar": "TEXT", "help": "what to tokenise; again for a batch"}),
            (("--save",), {"metavar": "DIR", "help": "write the run there"}),
            (("--values",), {"choices": list(api.VALUES), "default": "stats", "help": "what to keep"}),
            (("--method",), {"default": "forward", "help": "the method to call (default: the model itself)"}),
            (("--grad",), {"action": "store_true", "help": "run with gradients"}),
            _DEPTH,
        ),
    ),
)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; each one's help is the first line of its function's docstring."""
    top = argparse.ArgumentParser(
        prog="fxdebug",
        description="What happened inside my PyTorch model, and where does it go wrong?",
        epilog="Begin with: fxdebug run model.py:build --save runs/first, where build() returns (model, inputs).",
    )
    top.add_argument("--version", action="version", version=f"fxdebug {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        text = (command.function.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(command.function.__name__, help=text, description=text)
        for flags, options in command.arguments:
            sub.add_argument(*flags, **options)
        sub.set_defaults(function=command.function)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; our own errors become one line and exit status 2."""
    if arguments is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # × and … on a terminal that has neither
    options = parser().parse_args(arguments)
    try:
        status = int(options.function(options))
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except FxDebugError as error:
        print(f"fxdebug: {error}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return OK
    except OSError as error:  # a disk that is full, a file that may not be written to
        print(f"fxdebug: {error}", file=sys.stderr)
        _give_up_output()
        return UNUSABLE


def _give_up_output() -> None:
    """What is left to write could not be written: Python is not to try again at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
