"""What each command of `fxdebug` does."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from fxdebug import api
from fxdebug.apps.cli.load_model import from_file, transformers_model, with_decoder_start
from fxdebug.errors import FxDebugError, UsageError

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
        model, inputs = transformers_model(options.hf, options.text or [])
        if options.method == "forward":
            inputs = with_decoder_start(model, inputs)
    elif options.target is not None:
        model, inputs = from_file(options.target)
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
