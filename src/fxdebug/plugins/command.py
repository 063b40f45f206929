"""A command of ``fxdebug``: its function and its arguments, and the arguments that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple


def integer_from(least: int) -> Callable[[str], int]:
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
    """A command: its function, which returns the exit status, and its arguments.

    The name is that of the function, the help the first line of its docstring. ``place`` is where it stands among the
    commands.
    """

    function: Callable[[argparse.Namespace], int]
    arguments: tuple[Argument, ...]
    place: int = 1000


RUN = argument(
    "run", metavar="RUN", help="the folder of a saved run: what fxdebug run --save RUN or fx_debug(..., save=RUN) wrote"
)
RANK = argument("--rank", type=int, metavar="N", help="the rank to read, of a distributed run")

DEPTH = argument("--depth", type=integer_from(0), metavar="N", help="the most levels of calls below the model to show")
WIDTH = argument(
    "--width", type=integer_from(20), metavar="N", help="columns of text to print (default: those of the terminal)"
)

ALL = argument("--all", action="store_true", help="show every layer (default: repeated layers once)")

OPEN = argument("--open", action="store_true", help="also open it in the browser")

FORMS = (
    argument("--json", action="store_true", help="print JSON (described in docs/command-line.md)"),
    argument("--csv", action="store_true", help="print CSV"),
)

MODEL = (
    argument(
        "target",
        nargs="?",
        metavar="FILE.py:factory",
        help="a Python file and a function in it that returns (model, inputs)",
    ),
    argument(
        "--hf", metavar="DIR_OR_NAME", help="a transformers model with its tokenizer: a folder, or a name on the hub"
    ),
    argument("--text", action="append", metavar="TEXT", help="the input text for --hf; repeat it for a batch"),
)
MODEL_OR_RUN = (
    argument(
        "target",
        nargs="?",
        metavar="FILE.py:factory|RUN",
        help="a Python file and a function in it that returns (model, inputs), or the folder of a saved run",
    ),
    *MODEL[1:],
)
GRAD = argument("--grad", action="store_true", help="run with gradients enabled")
BACKWARD = argument(
    "--backward", action="store_true", help="also step through the backward of the mean of the first returned tensor"
)
COLUMNS = argument(
    "--columns",
    metavar="NAMES",
    help="columns to show: measures such as time.self,flops,params,bytes (fxdebug measures lists them), and "
    "input,output,dtype,kernel,status,source",
)
NO_CONFIG = argument("--no-config", action="store_true", help="do not read [tool.fxdebug] of a pyproject.toml")
KEEP = argument("--save", action="store_true", help="also save the numbers with the run, as measures")
ATTACH = (
    argument("--save", metavar="RUN", help="also run the model once traced, and save that run with these measures"),
    argument("--into", metavar="RUN", help="attach the measures to a saved run of the same model"),
)
FAIL_ON = argument(
    "--fail-on",
    default="warning",
    metavar="NAMES",
    help="which findings give exit status 1, separated by commas: error, warning or advice (and worse), names of "
    "rules, or never (default: warning)",
)
REPORT = (
    FAIL_ON,
    argument("--rows", type=integer_from(1), default=20, metavar="N", help="the most lines to print (default: 20)"),
    argument("--all", action="store_true", help="print every row (default: repeated layers in one line)"),
    argument(
        "-o",
        "--output",
        metavar="FILE",
        help="also write a picture (.png .svg .pdf) or a file (.csv .json .html .txt)",
    ),
    argument(
        "--against", metavar="FILE", help="print the differences from the report in FILE, which -o FILE.json wrote"
    ),
    *FORMS,
)
