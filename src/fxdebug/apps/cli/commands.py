"""The commands of `fxdebug`: show, find, check, graph, compare, run; the first docstring line is the help text."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from fxdebug import api
from fxdebug.apps.cli.load_model import from_file, transformers_model, with_decoder_start
from fxdebug.errors import FxDebugError, UsageError

# Exit status. FAILED: the model raised, nothing was found, or the runs differ. UNUSABLE: the command cannot work.
OK, FAILED, UNUSABLE = 0, 1, 2


def show(options: argparse.Namespace) -> int:
    """Print the call tree of a saved run."""
    trace = api.load(options.run, rank=options.rank)
    print(trace.text(fold=not options.all, depth=options.depth, width=options.width))
    return OK


def run(options: argparse.Namespace) -> int:
    """Run a model once and print its call tree: one built by a function, or a transformers model."""
    import torch

    if options.hf is not None and options.target is not None:
        raise UsageError(f"give either {options.target} or --hf {options.hf}, not both: one model is run at a time")
    if options.text and options.hf is None:
        raise UsageError("--text needs --hf: the inputs of a model in a file are what its function returns")
    if options.hf is not None:
        model, inputs = transformers_model(options.hf, options.text or [])
        if options.method == "forward":
            inputs = with_decoder_start(model, inputs)
    elif options.target is not None:
        model, inputs = from_file(options.target)
    else:
        raise UsageError("no model: give FILE.py:function, or --hf with a folder or name")
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
    """List the calls of a saved run that meet all conditions; with --ops its operations."""
    trace = api.load(options.run, rank=options.rank)
    chosen = {name: getattr(options, name) for name in ("type", "dtype", "shape", "status", "source", "where")}
    conditions = {name: value for name, value in chosen.items() if value is not None}
    if options.ops is not None:
        rows = [
            (str(n.id), n.op, n.status, n.values, n.source)
            for n in trace.ops(options.ops, path=options.path, **conditions)
        ]
    else:
        calls = trace.find(options.path, **conditions)
        rows = [(c.id, c.type, c.status, tuple(c.outputs or ()), c.source) for c in calls]
    print(api.listing(rows, _width()))
    return OK if rows else FAILED


def _width() -> int | None:
    """Return the columns of the terminal, or ``None`` (no limit) where another program reads the output."""
    import shutil

    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None where it was closed
    return shutil.get_terminal_size().columns if is_terminal or "COLUMNS" in os.environ else None


def check(options: argparse.Namespace) -> int:
    """Find what is wrong with the numbers of a saved run: NaN, overflow, cancellation."""
    import json

    findings = api.check(api.load(options.run, rank=options.rank))
    print(json.dumps(findings.as_json(), indent=2, allow_nan=False) if options.json else findings)
    return OK if findings.healthy else FAILED


def graph(options: argparse.Namespace) -> int:
    """Draw the graph of a saved run, or write it for other programs."""
    trace = api.load(options.run, rank=options.rank)
    chosen = {name: getattr(options, name) for name in ("depth", "color", "rankdir")}
    chosen |= {"everything": options.everything or None, "fold": False if options.all else None}
    path = trace.export(options.output, **{name: value for name, value in chosen.items() if value is not None})
    print(f"wrote {path}")
    return OK


def compare(options: argparse.Namespace) -> int:
    """Compare run B with run A, the reference: which step adds error. Exit status 1: they differ, 2: cannot compare."""
    import json

    comparison = api.compare(
        api.load(options.a, rank=options.rank),
        api.load(options.b, rank=options.rank),
        mapping=_mapping(options.map),
        ignore=options.ignore,
        tolerance=options.tolerance,
    )
    if options.json:
        print(json.dumps(comparison.as_json(), indent=2, allow_nan=False))
    else:
        print(comparison.text(fold=not options.all, width=options.width))
    if options.output:
        written = comparison.export(options.output)
        print(f"\nwrote {written}", file=sys.stderr if options.json else None)
    return {"equal": OK, "different": FAILED, "could not compare": UNUSABLE}[comparison.verdict]


def _mapping(pairs: Sequence[str]) -> dict[str, str] | str:
    """Return the mapping of ``--map``: any number of A=B, or the path of one file."""
    if len(pairs) == 1 and "=" not in pairs[0]:
        return pairs[0]
    wrong = next((text for text in pairs if "=" not in text), None)
    if wrong is not None:
        raise UsageError(f"--map {wrong}: give one file, or any number of A=B such as 'encoder.layer.*=layers.*'")
    return dict(text.split("=", 1) for text in pairs)
