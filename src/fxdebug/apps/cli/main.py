"""The command line: the options of each command, their parser, and the entry point."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from types import TracebackType

from fxdebug import api
from fxdebug.api.commands.parts import OK, UNUSABLE
from fxdebug.api.commands.signals import tidy_end
from fxdebug.apps.cli.check_commands import check, rules
from fxdebug.apps.cli.commands import compare, find, graph, run, show
from fxdebug.apps.cli.export_commands import export, open
from fxdebug.apps.cli.measure_commands import measures
from fxdebug.apps.cli.native_command import native
from fxdebug.apps.cli.page_commands import page
from fxdebug.apps.cli.plugin_commands import analyse, plugins
from fxdebug.errors import FxDebugError, nearest
from fxdebug.narrow_output import write_what_it_can
from fxdebug.plugins.command import (
    ALL,
    COLUMNS,
    DEPTH,
    FAIL_ON,
    FORMS,
    GRAD,
    MODEL,
    NO_CONFIG,
    OPEN,
    RANK,
    REPORT,
    RUN,
    WIDTH,
    Command,
    argument,
    integer_from,
)  # fmt: skip
from fxdebug.plugins.features import commands_of, features
from fxdebug.printable import printable_lines
from fxdebug.version import __version__

_PAIRS = (
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
    argument(
        "--strict",
        action="store_true",
        help="also report differences that have no effect on these inputs, such as another epsilon",
    ),
    argument(
        "--weights-a", metavar="FILE", help="weights of A if its run did not save them: .safetensors, .pt or a folder"
    ),
    argument("--weights-b", metavar="FILE", help="the same for B"),
)
_TO = argument("--to", metavar="NAME", help="the program that opens it: tensorboard, netron, …, or a suffix")

_TO_EXPORT = (
    argument(
        "target",
        nargs="?",
        metavar="RUN|FILE.py:factory|FILE",
        help="the folder of a saved run or of a watched training, a report that -o FILE.json wrote, or a Python file "
        "and a function in it that returns (model, inputs): it is run once",
    ),
    *MODEL[1:],
)
_TO_PROGRAM = (
    argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the format, such as depth=2 (repeatable; docs/exports.md lists them)",
    ),
    RANK,
)
_PROGRAMS = ("netron", "tensorboard")  # those of api.VIEWERS: a test compares

COMMANDS_OF_CORE: tuple[Command, ...] = (
    Command(
        show,
        (
            RUN,
            argument(
                "call", nargs="?", metavar="PATH", help="show this call: a module's path, or a call such as h.0#2"
            ),
            COLUMNS,
            ALL,
            DEPTH,
            WIDTH,
            *FORMS,
            RANK,
        ),
        place=10,
    ),
    Command(
        find,
        (
            RUN,
            argument("path", nargs="?", metavar="GLOB", help="paths of modules, such as '*.attention.*'"),
            argument("--type", metavar="GLOB", help="classes of modules, such as Linear"),
            argument("--ops", metavar="GLOB", nargs="?", const="*", help="list operations of these names, not calls"),
            argument("--dtype", metavar="GLOB", help="dtype of a result, such as float16"),
            argument("--shape", metavar="SIZES", help="shape of a result, such as '2,*,384'"),
            argument("--status", metavar="STATUS", help="status of the graph: verified, recorded or opaque"),
            argument("--source", metavar="GLOB", help="source line, such as model.py or model.py:12"),
            argument("--where", metavar="CONDITION", help="such as 'absmax > 100 or time.self > 1ms'"),
            *FORMS,
            RANK,
        ),
        place=20,
    ),
    Command(
        check,
        (
            argument(
                "target",
                nargs="?",
                metavar="RUN|FILE.py:factory",
                help="the folder of a saved run or of a watched training, or a Python file and a function in it that "
                "returns (model, inputs)",
            ),
            *MODEL[1:],
            argument(
                "--backward",
                action="store_true",
                help="also check gradients, of the model's loss or of the mean of its output",
            ),
            GRAD,
            FAIL_ON,
            argument(
                "--off",
                action="append",
                default=[],
                metavar="RULE",
                help="a rule to switch off, such as 'dead unit' (repeatable; fxdebug rules lists them)",
            ),
            argument(
                "--limit",
                action="append",
                default=[],
                metavar="NAME=NUMBER",
                help="a threshold, such as activations.massive=200 (repeatable)",
            ),
            argument(
                "--analyses",
                metavar="NAMES",
                help="run only these, separated by commas, such as numbers,structure; a name that is none lists all",
            ),
            NO_CONFIG,
            *FORMS,
            RANK,
        ),
        place=30,
    ),
    Command(rules, (NO_CONFIG, WIDTH, *FORMS), place=40),
    Command(
        graph,
        (
            RUN,
            argument(
                "-o",
                "--output",
                default="graph.svg",
                metavar="FILE",
                help="a file ending in .svg .png .pdf .dot .gv .graphml .json .html .txt (default: graph.svg)",
            ),
            DEPTH,
            argument("--color", metavar="BY", help="colour by: kind (default), status, none, or a measure: time.self"),
            argument("--measures", metavar="NAMES", help="measures to write into the nodes, such as time.self,flops"),
            argument("--rankdir", metavar="DIRECTION", help="TB: downwards (default); LR: to the right, by Graphviz"),
            argument("--layout", metavar="LAYOUT", help="page: as in the page of a run (default); dot: by Graphviz"),
            argument("--theme", metavar="THEME", help="light (default) or dark"),
            ALL,
            argument(
                "--everything", action="store_true", help="draw sizes, parameters and the inside of leaf modules too"
            ),
            *FORMS,
            RANK,
        ),
        place=50,
    ),
    Command(
        export,
        (
            _TO_EXPORT[0],
            argument("other", nargs="?", metavar="RUN", help="a second run: the comparison of it with the first"),
            *_TO_EXPORT[1:],
            argument(
                "-o",
                "--output",
                metavar="PATH",
                help="the file or folder to write; its suffix chooses the format",
            ),
            _TO,
            *_PAIRS,
            *_TO_PROGRAM,
        ),
        place=60,
    ),
    Command(
        open,
        (
            *_TO_EXPORT,
            *[
                argument(f"--{name}", dest="program", action="store_const", const=name, help=f"start {name}")
                for name in _PROGRAMS
            ],
            argument("--port", type=integer_from(0), default=0, metavar="N", help="the port (default: a free one)"),
            argument("--no-browser", action="store_true", help="print the address and open no browser"),
            *_TO_PROGRAM,
        ),
        place=70,
    ),
    Command(
        page,
        (
            RUN,
            argument("-o", "--output", default="run.html", metavar="FILE", help="the file (default: run.html)"),
            argument(
                "--no-check", action="store_true", help="leave out the findings about the numbers, which take time"
            ),
            OPEN,
            RANK,
        ),
        place=80,
    ),
    Command(
        compare,
        (
            argument(
                "a",
                metavar="A",
                help="the reference: a saved run, a golden file, or a tree of transformers' debugger; RUN::PATH is "
                "one call in it, such as runs/a::layers.3; runs/a::#2 is the third call of the model itself; or "
                "FILE.py:function, which returns (model, inputs)",
            ),
            argument(
                "b", metavar="B", help="the run to check against A, given in the same ways; a model gets A's inputs"
            ),
            *_PAIRS,
            argument(
                "--quantised",
                action="store_true",
                help="B is a quantised version of A: rank its calls by their effect on the result, those to leave "
                "unquantised first",
            ),
            argument(
                "--measures",
                metavar="NAMES",
                help="also compare measures of both runs, such as time.self,flops, call by call",
            ),
            argument("--all", action="store_true", help="show every finding and every call"),
            argument(
                "--repro",
                metavar="FOLDER",
                help="also write a script and its tensors that show the first finding with torch alone",
            ),
            argument("--json", action="store_true", help="print the verdict, the coverage and the findings as JSON"),
            argument("--csv", action="store_true", help="print every pair as CSV"),
            argument(
                "-o",
                "--output",
                metavar="FILE",
                help="also write a file ending in .svg .png .pdf .dot .gv .csv .json .txt .html .md",
            ),
            _TO,
            WIDTH,
            RANK,
        ),
        place=100,
    ),
    Command(
        run,
        (
            *MODEL,
            argument("--save", metavar="RUN", help="folder to save the run to"),
            argument(
                "--private",
                action="store_true",
                help="save without paths, texts of objects, string arguments and exception texts",
            ),
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
            GRAD,
            DEPTH,
            *FORMS,
        ),
        place=110,
    ),
    Command(
        measures,
        (
            argument("run", nargs="?", metavar="RUN", help="a saved run: list only the measures that it has"),
            WIDTH,
            *FORMS,
            RANK,
        ),
        place=200,
    ),
    Command(
        native,
        (
            argument("action", nargs="?", choices=("build",), help="build: make a build for the installed torch"),
            argument("--again", action="store_true", help="build again even if this build exists"),
            argument("--strict", action="store_true", help="treat compiler warnings as errors"),
            argument("--if-possible", action="store_true", help="exit with status 0 if there is no compiler"),
        ),
        place=220,
    ),
    Command(plugins, FORMS, place=230),
    Command(
        analyse,
        (
            argument("name", metavar="NAME", help="an analysis that another package adds (fxdebug plugins lists them)"),
            RUN,
            *REPORT,
            *_TO_PROGRAM,
        ),
        place=240,
    ),
)


@functools.cache
def commands() -> tuple[Command, ...]:
    """Return the commands of the core and of the features, each in its place."""
    found = [*COMMANDS_OF_CORE, *[command for one in features() for command in commands_of(one)]]
    by_name = {command.function.__name__: command for command in reversed(found)}  # of two, ours
    return tuple(sorted(by_name.values(), key=lambda command: command.place))


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the help of a command is the first line of its function's docstring."""
    top = argparse.ArgumentParser(
        prog="fxdebug",
        description="What happened inside my PyTorch model, and where does it go wrong?",
        epilog="Begin with: fxdebug run model.py:build --save runs/first, where build() returns (model, inputs).",
    )
    top.add_argument("--version", action="version", version=f"fxdebug {__version__}")
    added = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands():
        text = (command.function.__doc__ or "").splitlines()[0]
        sub = added.add_parser(command.function.__name__, help=text, description=text)
        for flags, options in command.arguments:
            sub.add_argument(*flags, **options)
        sub.set_defaults(function=command.function, parser=sub)
    return top


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; an unknown one ends with the usage of the command that it was given to."""
    top = parser()
    options, unknown = top.parse_known_args(arguments)
    if unknown:
        own = next(command.arguments for command in commands() if command.function is options.function)
        known = [flag for one in own for flag in one.flags if flag.startswith("-")]
        near = nearest(unknown[0].partition("=")[0], known) if unknown[0].startswith("-") else ""
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}" + (f".{near}" if near else ""))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; an error of fxdebug becomes one line and status 2."""
    if arguments is None:
        write_what_it_can(sys.stdout, as_json=False)
    options = _parsed(arguments)
    if arguments is None:
        write_what_it_can(sys.stdout, as_json=bool(getattr(options, "json", False)))
    with tidy_end() if arguments is None else contextlib.nullcontext():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        if getattr(options, "fail_on", None) is not None:
            api.fails((), options.fail_on)  # a name that there is not is told before a model runs
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
        print(printable_lines(f"fxdebug: {error}"), file=sys.stderr)
        _give_up_output()
        return UNUSABLE
    except Exception as error:
        error.__traceback__ = _from_users_code(error.__traceback__)
        raise


def _from_users_code(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins where our code calls the model; all of it where it does not."""
    ours, rest = __name__.partition(".")[0], traceback
    while rest is not None and rest.tb_frame.f_globals.get("__name__", "").partition(".")[0] == ours:
        rest = rest.tb_next
    return traceback if rest is None else rest


def _give_up_output() -> None:
    """Discard output that could not be written, so that Python does not try again when it exits."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
