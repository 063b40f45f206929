"""The command line: the options of each command, their parser, and the entry point."""

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


def _integer_from(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers that are at least ``least``."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return read


class Argument(NamedTuple):
    """An argument of a command: the parameters of ``ArgumentParser.add_argument``."""

    flags: tuple[str, ...]
    options: dict[str, Any]


def argument(*flags: str, **options: Any) -> Argument:
    """Return an argument, in the words of ``ArgumentParser.add_argument``."""
    return Argument(flags, options)


class Command(NamedTuple):
    """A command: its function, and its arguments."""

    function: Callable[[argparse.Namespace], int]
    arguments: tuple[Argument, ...]


_RUN = argument(
    "run", metavar="RUN", help="the folder of a saved run: what fxdebug run --save RUN or fx_debug(..., save=RUN) wrote"
)
_RANK = argument("--rank", type=int, metavar="N", help="the rank to read, of a distributed run")

_DEPTH = argument(
    "--depth", type=_integer_from(0), metavar="N", help="the most levels of calls below the model to show"
)
_WIDTH = argument(
    "--width", type=_integer_from(20), metavar="N", help="columns of text to print (default: those of the terminal)"
)

_ALL = argument("--all", action="store_true", help="show every layer (default: repeated layers once)")

COMMANDS: tuple[Command, ...] = (
    Command(
        show,
        (
            _RUN,
            _ALL,
            _DEPTH,
            _WIDTH,
            _RANK,
        ),
    ),
    Command(
        find,
        (
            _RUN,
            argument("path", nargs="?", metavar="GLOB", help="paths of modules, such as '*.attention.*'"),
            argument("--type", metavar="GLOB", help="classes of modules, such as Linear"),
            argument("--ops", metavar="GLOB", nargs="?", const="*", help="list operations of these names, not calls"),
            argument("--dtype", metavar="GLOB", help="dtype of a result, such as float16"),
            argument("--shape", metavar="SIZES", help="shape of a result, such as '2,*,384'"),
            argument("--status", metavar="STATUS", help="status of the graph: verified, recorded or opaque"),
            argument("--source", metavar="GLOB", help="source line, such as model.py or model.py:12"),
            argument("--where", metavar="CONDITION", help="on statistics, such as 'absmax > 100 or nan > 0'"),
            _RANK,
        ),
    ),
    Command(
        check,
        (_RUN, argument("--json", action="store_true", help="print the findings as JSON"), _RANK),
    ),
    Command(
        graph,
        (
            _RUN,
            argument(
                "-o",
                "--output",
                default="graph.svg",
                metavar="FILE",
                help="a file ending in .svg .png .pdf .dot .gv .graphml .json .html .txt (default: graph.svg)",
            ),
            _DEPTH,
            argument("--color", metavar="BY", help="colour by: status (default) mean std min max absmax zeros none"),
            argument("--rankdir", metavar="DIRECTION", help="TB: downwards (default); LR: to the right"),
            _ALL,
            argument(
                "--everything", action="store_true", help="draw sizes, parameters and the inside of leaf modules too"
            ),
            _RANK,
        ),
    ),
    Command(
        compare,
        (
            argument(
                "a",
                metavar="A",
                help="the reference: a saved run, a golden file, or a tree written by transformers' debugger",
            ),
            argument("b", metavar="B", help="the run to check against it: the same kinds"),
            argument(
                "--map",
                action="append",
                default=[],
                metavar="FILE|A=B",
                help="paths of modules in A and in B, such as 'encoder.layer.*=layers.*' (repeatable), or one file",
            ),
            argument(
                "--ignore",
                action="append",
                default=[],
                metavar="GLOB",
                help="paths of modules to leave out; may be repeated",
            ),
            argument("--tolerance", type=float, metavar="X", help="the relative error to allow (default: by dtype)"),
            argument("--all", action="store_true", help="show every finding and every call"),
            argument("--json", action="store_true", help="print the verdict, the coverage and the findings as JSON"),
            argument(
                "-o",
                "--output",
                metavar="FILE",
                help="also write a file ending in .svg .png .pdf .dot .gv .csv .json .txt .html",
            ),
            _WIDTH,
            _RANK,
        ),
    ),
    Command(
        run,
        (
            argument(
                "target",
                nargs="?",
                metavar="FILE.py:factory",
                help="a Python file and a function in it that returns (model, inputs)",
            ),
            argument(
                "--hf",
                metavar="DIR_OR_NAME",
                help="a transformers model with its tokenizer: a folder, or a name on the hub",
            ),
            argument("--text", action="append", metavar="TEXT", help="the input text for --hf; repeat it for a batch"),
            argument("--save", metavar="RUN", help="folder to save the run to"),
            argument(
                "--values",
                choices=list(api.VALUES),
                default="stats",
                help="what to keep of each tensor: statistics (default), samples, its printed form, or its data",
            ),
            argument(
                "--method",
                default="forward",
                help="the method of the model to call, such as generate (default: forward)",
            ),
            argument("--grad", action="store_true", help="run with gradients enabled"),
            _DEPTH,
        ),
    ),
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the help of a command is the first line of its function's docstring."""
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
    """Run one command and return its exit status; an error of fxdebug becomes one line and status 2."""
    if arguments is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may be unable to show × and …
    options = parser().parse_args(arguments)
    try:
        status = int(options.function(options))
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except FxDebugError as error:
        print(f"fxdebug: {error}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:  # the reader (head, less) was closed
        sys.stderr.close()
        return OK
    except OSError as error:  # the disk is full, or the file is not writable
        print(f"fxdebug: {error}", file=sys.stderr)
        _give_up_output()
        return UNUSABLE


def _give_up_output() -> None:
    """Discard output that could not be written, so that Python does not try again when it exits."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
