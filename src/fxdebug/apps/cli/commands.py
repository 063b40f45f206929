"""The commands of `fxdebug` on runs: show, find, graph, compare, run; the first docstring line is the help."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fxdebug import api
from fxdebug.api.commands.load_model import from_file
from fxdebug.api.commands.parts import FAILED, OK, UNUSABLE, chosen_model, form_of, load_run
from fxdebug.errors import FxDebugError, UsageError
from fxdebug.exports import records

if TYPE_CHECKING:
    from fxdebug.analyses.quantisation.report import QuantisedRow
    from fxdebug.api import Comparison, Report


def show(options: argparse.Namespace) -> int:
    """Print the call tree of a saved run, or one call: code, inputs, outputs, weights."""
    trace, form = load_run(options.run, options), form_of(options)
    if options.call is not None:
        call = trace[options.call]
        if form == "json":
            print(records.call_json(trace, call))
        else:
            print(records.call_csv(trace, call) if form == "csv" else trace.describe(call, width=options.width))
    elif form == "text":
        columns, fold = options.columns, not options.all
        print(trace.text(fold=fold, depth=options.depth, width=options.width, columns=columns))
    else:
        rows = records.calls_to(trace, options.depth, api.require_columns(trace, options.columns or ()))
        print(records.trace_json(trace, rows) if form == "json" else records.found_csv(rows))
    return OK


def run(options: argparse.Namespace) -> int:
    """Run a model once and print its call tree: one built by a function, or a transformers model."""
    import torch

    if options.private and not options.save:
        raise UsageError("--private needs --save: it leaves private texts out of the saved run")
    model, inputs = chosen_model(options, options.method)
    with torch.set_grad_enabled(options.grad):
        try:
            save = None if options.private else options.save
            trace = api.fx_debug(model, inputs, save=save, values=options.values, method=options.method)
        except FxDebugError:
            raise
        except Exception:
            partial = api.last_failed()
            if partial is not None:
                if options.private and options.save:
                    partial.save(options.save, private=True)
                print(partial.text(depth=options.depth))
            raise
    if options.private and options.save:
        trace.save(options.save, private=True)
    form, rank = form_of(options), trace.settings.get("rank")
    if not _is_first(rank):
        return OK  # what the ranks print at a time would be mixed
    if form != "text":
        rows = records.calls_to(trace, options.depth)
        print(records.trace_json(trace, rows) if form == "json" else records.found_csv(rows))
        return OK
    print(trace.text(depth=options.depth))
    if options.save:
        which = "" if rank is None else f" --rank {rank}"
        ranks = trace.settings.get("world_size", 1)
        others = f" (or another of the {ranks} ranks)" if isinstance(ranks, int) and ranks > 1 else ""
        print(f"\nsaved to {options.save}; look again with: fxdebug show {options.save}{which}{others}")
    return OK


def _is_first(rank: int | None) -> bool:
    """Is this the rank that prints, in a job that ``torchrun`` started or the program set up?"""
    started = "TORCHELASTIC_RUN_ID" in os.environ
    return rank in (None, 0) and not (rank is None and started and os.environ.get("RANK", "0") != "0")


def find(options: argparse.Namespace) -> int:
    """List the calls of a saved run that meet all conditions; with --ops its operations."""
    trace, form = load_run(options.run, options), form_of(options)
    chosen = {name: getattr(options, name) for name in ("type", "dtype", "shape", "status", "source", "where")}
    conditions = {name: value for name, value in chosen.items() if value is not None}
    ops = options.ops is not None
    found = trace.ops(options.ops, path=options.path, **conditions) if ops else trace.find(options.path, **conditions)
    rows = records.found_rows(trace, found, options.dtype, options.shape, options.where)
    if form == "json":
        print(records.found_json(trace, rows, ops))
    elif form == "csv":
        print(records.found_csv(rows, asked=options.where is not None))
    else:
        print(api.listing(rows, _width()))
    return OK if rows else FAILED


def _width() -> int | None:
    """Return the columns of the terminal, or ``None`` (no limit) where another program reads the output."""
    import shutil

    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None where it was closed
    return shutil.get_terminal_size().columns if is_terminal or "COLUMNS" in os.environ else None


def graph(options: argparse.Namespace) -> int:
    """Draw the graph of a saved run, or write it for other programs."""
    trace, form = load_run(options.run, options), form_of(options)
    if form != "text":
        whole = trace.graph if options.depth is None else trace.graph_at(options.depth)
        print(records.graph_json(trace, whole) if form == "json" else records.edges_csv(whole))
        return OK
    chosen = {name: getattr(options, name) for name in ("depth", "color", "measures", "rankdir", "layout", "theme")}
    chosen |= {"everything": options.everything or None, "fold": False if options.all else None}
    path = trace.export(options.output, **{name: value for name, value in chosen.items() if value is not None})
    print(f"wrote {path}")
    return OK


def compare(options: argparse.Namespace) -> int:
    """Compare run B with run A, the reference: which step adds error. Exit status 1: they differ, 2: cannot compare."""
    import json

    if options.to and not options.output:
        raise UsageError(f"--to {options.to}: name what to write: -o PATH")
    if options.quantised:
        return _compare_quantised(options)
    comparison = compared(options, options.a, options.b)
    report = comparison.measures(options.measures) if options.measures else None
    form = form_of(options)
    if form == "json":
        measured = {} if report is None else {"measures": report.as_json()}
        print(json.dumps(comparison.as_json() | measured, indent=2, allow_nan=False))
    elif form == "csv":
        print(comparison.csv_text())
    else:
        print(comparison.text(fold=not options.all, width=options.width))
        if report is not None:
            print(f"\n{report.text(width=options.width)}")
    if options.output:
        written = comparison.export(options.output, options.to)
        print(f"\nwrote {written}", file=None if form == "text" else sys.stderr)
    if options.repro and comparison.first is not None:
        script = comparison.first.repro(options.repro)
        print(f"\nwrote {script}", file=None if form == "text" else sys.stderr)
    return {"equal": OK, "different": FAILED, "could not compare": UNUSABLE}[comparison.verdict]


def _compare_quantised(options: argparse.Namespace) -> int:
    """Print the calls of a quantised B by what they do to the result."""
    if options.measures or options.to:
        raise UsageError("--quantised prints a report of its own: leave out --measures and --to")
    function, given = _to_compare(options, options.a, options.b)
    report: Report[QuantisedRow] = function(*given, quantised=True)
    form = form_of(options)
    if form == "json":
        print(report.json_text(), end="")
    elif form == "csv":
        print(report.csv_text(), end="")
    else:
        print(report.text(width=options.width, **({"rows": None} if options.all else {})))
    if options.output:
        written = report.export(options.output)
        print(f"\nwrote {written}", file=None if form == "text" else sys.stderr)
    return OK


def compared(options: argparse.Namespace, a: str, b: str) -> Comparison:
    """Return the comparison of two runs, or of two models with the inputs of the first, as the options say."""
    function, given = _to_compare(options, a, b)
    comparison: Comparison = function(*given)
    return comparison


def _to_compare(options: argparse.Namespace, a: str, b: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function that compares, with the options, and the runs, or the models and the inputs of the first."""
    chosen = {"mapping": _mapping(options.map), "ignore": options.ignore, "tolerance": options.tolerance}
    chosen["strict"] = options.strict
    models = [_is_factory(one) for one in (a, b)]
    if all(models):
        if options.weights_a or options.weights_b:
            raise UsageError("--weights-a and --weights-b are for saved runs: models have their weights")
        (model_a, inputs), (model_b, _) = from_file(a), from_file(b)
        return partial(api.compare_models, **chosen), (model_a, model_b, inputs)
    if any(models):
        raise UsageError(f"{a} and {b}: give two runs, or two functions FILE.py:function that return (model, inputs)")
    runs = [load_run(one, options, api.run_to_compare) for one in (a, b)]
    weights = {"weights_a": options.weights_a, "weights_b": options.weights_b}
    return partial(api.compare, **chosen, **weights), tuple(runs)


def _is_factory(text: str) -> bool:
    """Is it FILE.py:function? A call of a run is RUN::PATH."""
    file, _, name = text.rpartition(":")
    return file.endswith(".py") and name.isidentifier()


def _mapping(pairs: Sequence[str]) -> dict[str, str] | str:
    """Return the mapping of ``--map``: any number of A=B, or the path of one file."""
    if len(pairs) == 1 and "=" not in pairs[0]:
        return pairs[0]
    wrong = next((text for text in pairs if "=" not in text), None)
    if wrong is not None:
        raise UsageError(f"--map {wrong}: give one file, or any number of A=B such as 'encoder.layer.*=layers.*'")
    return dict(text.split("=", 1) for text in pairs)
