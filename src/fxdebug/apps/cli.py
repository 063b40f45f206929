"""The command ``fxdebug``: trace from the shell, look at saved runs.

A command is a function; its name, help and arguments stand together in :data:`COMMANDS`.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxdebug import api
from fxdebug.errors import FxDebugError, UsageError, needs
from fxdebug.version import __version__

# exit status: fine; the model raised, nothing was found, or the runs differ; the command cannot work
OK, FAILED, UNUSABLE = 0, 1, 2


# Commands ----------------------------------------------------------------------------------------


def show(options: argparse.Namespace) -> int:
    """Draw the call tree of a saved run."""
    trace = api.load(options.run, rank=options.rank)
    print(trace.text(fold=not options.all, depth=options.depth, width=options.width))
    return OK


def run(options: argparse.Namespace) -> int:
    """Trace a model: FILE.py:factory, where factory() returns (model, inputs), or a transformers model."""
    import torch

    if options.hf is not None and options.target is not None:
        raise UsageError(f"give either {options.target} or --hf {options.hf}: one model is run at a time")
    if options.text and options.hf is None:
        raise UsageError("--text is for --hf: the inputs of a model in a file are what its function returns")
    if options.hf is not None:
        model, inputs = _transformers_model(options.hf, options.text or [])
        if options.method == "forward":
            inputs = _with_decoder_start(model, inputs)
    elif options.target is not None:
        model, inputs = _from_file(options.target)
    else:
        raise UsageError("give FILE.py:factory, or --hf with a folder or name")
    with torch.set_grad_enabled(options.grad):
        try:
            trace = api.fx_debug(model, inputs, save=options.save, values=options.values, method=options.method)
        except FxDebugError:
            raise
        except Exception:
            partial = api.last_failed()
            if partial is not None:
                print(partial.text(depth=options.depth))
            raise
    print(trace.text(depth=options.depth))
    if options.save:
        print(f"\nsaved to {options.save}; look again with: fxdebug show {options.save}")
    return OK


def find(options: argparse.Namespace) -> int:
    """List the calls of a run, or with --ops its operations, that fit a question."""
    trace = api.load(options.run, rank=options.rank)
    chosen = {name: getattr(options, name) for name in ("type", "dtype", "shape", "status", "source", "where")}
    conditions = {name: value for name, value in chosen.items() if value is not None}
    if options.ops is not None:
        found = [
            (str(n.id), n.op, n.status, n.values, n.source)
            for n in trace.ops(options.ops, path=options.path, **conditions)
        ]
    else:
        calls = trace.find(options.path, **conditions)
        found = [(c.id, c.type, c.status, tuple(c.outputs or ()), c.source) for c in calls]
    print(api.listing(found, _width()))
    return OK if found else FAILED


def check(options: argparse.Namespace) -> int:
    """Say what is wrong with the numbers of a saved run, worst first: NaN, overflow, cancellation."""
    import json

    found = api.check(api.load(options.run, rank=options.rank))
    print(json.dumps(found.as_json(), indent=2, allow_nan=False) if options.json else found)
    return OK if found.healthy else FAILED


def _width() -> int | None:
    """The columns there are; as many as it takes where another program reads along."""
    import shutil

    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # none where it was closed
    return shutil.get_terminal_size().columns if is_terminal or "COLUMNS" in os.environ else None


def graph(options: argparse.Namespace) -> int:
    """Draw the graph of a saved run, or write it for another program."""
    trace = api.load(options.run, rank=options.rank)
    chosen = {name: getattr(options, name) for name in ("depth", "color", "rankdir")}
    chosen |= {"everything": options.everything or None, "fold": False if options.all else None}
    path = trace.export(options.output, **{name: value for name, value in chosen.items() if value is not None})
    print(f"wrote {path}")
    return OK


def compare(options: argparse.Namespace) -> int:
    """Say where run B parts ways with run A, the reference; exit status 0: equal, 1: different."""
    comparison = api.compare(
        api.load(options.a, rank=options.rank),
        api.load(options.b, rank=options.rank),
        mapping=_mapping(options.map),
        ignore=options.ignore,
        tolerance=options.tolerance,
    )
    print(comparison.text(fold=not options.all, width=options.width))
    if options.output:
        print(f"\nwrote {comparison.export(options.output)}")
    if not comparison.findings and not comparison.compared:
        return UNUSABLE
    return OK if comparison.equal else FAILED


def _mapping(given: Sequence[str]) -> Any:
    """What ``--map`` says: A=B, as often as one likes, or one file."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    wrong = next((text for text in given if "=" not in text), None)
    if wrong is not None:
        raise UsageError(f"--map {wrong}: give one file, or any number of A=B such as 'encoder.layer.*=layers.*'")
    return dict(text.split("=", 1) for text in given)


def _from_file(target: str) -> tuple[Any, Any]:
    """``FILE.py:factory`` → the model and its inputs."""
    path, _, name = target.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(f"{target!r} is not FILE.py:factory")
    if not Path(path).is_file():
        raise UsageError(f"there is no file {path}")
    sys.path.insert(0, str(Path(path).resolve().parent))
    stem = Path(path).stem
    module = types.ModuleType(stem if stem not in sys.modules else f"{stem} (given to fxdebug)")
    module.__file__ = path
    sys.modules[module.__name__] = module  # it stays: dataclasses, pickle and type hints look their module up
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    namespace = vars(module)
    factory = namespace.get(name)
    if not callable(factory):
        known = ", ".join(key for key, value in namespace.items() if callable(value) and not key.startswith("_"))
        raise UsageError(f"{path} defines no function {name!r}; it defines {known or 'none'}")
    made = factory()
    if not isinstance(made, tuple) or len(made) != 2:
        raise UsageError(f"{name}() must return (model, inputs), not {type(made).__name__}")
    return made


def _transformers_model(name: str, texts: Sequence[str]) -> tuple[Any, Any]:
    """A model and tokenised text, from a folder or by name; the class is the one its configuration names."""
    try:
        import transformers
    except ImportError as error:
        raise needs("loading a transformers model", "transformers", "transformers") from error
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        classes = [getattr(transformers, kind, None) for kind in config.architectures or ()]
        model = (next(filter(None, classes), transformers.AutoModel)).from_pretrained(name).eval()
    except (OSError, ValueError) as error:
        raise UsageError(f"no model can be loaded from {name!r}: {error}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None and len(texts) > 1:
        raise UsageError(f"the tokenizer of {name!r} has no padding token: give one --text at a time")
    batch = tokenizer(list(texts) or ["Hello, world."], padding=len(texts) > 1, return_tensors="pt")
    return model, batch


def _with_decoder_start(model: Any, batch: Any) -> dict[str, Any]:
    """For models with a decoder: the token it begins with, where the model does not see to that itself."""
    import inspect

    import torch

    inputs, start = dict(batch), getattr(model.config, "decoder_start_token_id", None)
    takes = inspect.signature(model.forward).parameters
    if model.config.is_encoder_decoder and start is not None and "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = torch.full((len(inputs["input_ids"]), 1), start)
    return inputs


# The parser --------------------------------------------------------------------------------------


class Command(NamedTuple):
    """A function and what it takes: ``(flags, keyword arguments of add_argument)``."""

    function: Callable[[argparse.Namespace], int]
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]


_RUN = (("run",), {"metavar": "DIR", "help": "a folder written by fx_debug(..., save=DIR)"})
_RANK = (("--rank",), {"type": int, "metavar": "N", "help": "of a distributed run"})


def _number_from(least: int) -> Callable[[str], int]:
    """What reads a whole number that is not below another one."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} on")
        return int(text)

    return read


_DEPTH = (("--depth",), {"type": _number_from(0), "metavar": "N", "help": "levels below the model"})
_WIDTH = (("--width",), {"type": _number_from(20), "metavar": "N", "help": "columns (default: the terminal's)"})

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
