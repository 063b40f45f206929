"""Parts of commands: the model or the run that options name, and a report in the form that they ask for."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug import api
from fxdebug.api.commands.load_model import from_file, transformers_model, with_decoder_start
from fxdebug.errors import FxDebugError, RankNeeded, UsageError

if TYPE_CHECKING:
    from fxdebug.api import Report, Trace
    from fxdebug.data.report import ReportData

# Exit status. FAILED: the model raised, nothing was found, or the runs differ. UNUSABLE: the command cannot work.
OK, FAILED, UNUSABLE = 0, 1, 2
PICTURES = (".png", ".svg", ".pdf")


def load_run(folder: str, options: argparse.Namespace, read: Callable[..., Trace] | None = None) -> Trace:
    """Return the run in a folder, by ``read`` or ``api.load``; one of several ranks is chosen with ``--rank``."""
    try:
        return (read or api.load)(folder, rank=options.rank)
    except RankNeeded as error:
        raise UsageError(f"{error.folder} is a run of {len(error.ranks)} ranks: give {_ranks(error.ranks)}") from None


def _ranks(ranks: Sequence[int]) -> str:
    return f"--rank {ranks[0]}" + (f" … --rank {ranks[-1]}" if len(ranks) > 1 else "")


def form_of(options: argparse.Namespace) -> str:
    """Return the form of the output: text, json or csv."""
    if options.json and options.csv:
        raise UsageError("give either --json or --csv, not both")
    return "json" if options.json else "csv" if options.csv else "text"


def chosen_model(options: argparse.Namespace, method: str = "forward") -> tuple[Any, Any]:
    """Return the model of ``FILE.py:function`` or ``--hf``, and its inputs."""
    if options.hf is not None and options.target is not None:
        raise UsageError(f"give either {options.target} or --hf {options.hf}, not both: one model is run at a time")
    if options.text and options.hf is None:
        raise UsageError("--text needs --hf: the inputs of a model in a file are what its function returns")
    if options.hf is not None:
        model, inputs = transformers_model(options.hf, options.text or [])
        return model, with_decoder_start(model, inputs) if method == "forward" else inputs
    if options.target is None:
        raise UsageError("no model: give FILE.py:function, or --hf with a folder or name")
    return from_file(options.target)


def run_of(options: argparse.Namespace) -> Trace:
    """Return a saved run, or that of a model which is run once; a folder is a run whatever its name."""
    target = options.target
    if target is not None and (Path(target).is_dir() or ":" not in target):
        if options.hf is not None:
            raise UsageError(f"give either the run {target} or --hf {options.hf}, not both")
        return load_run(target, options)
    if target is None and options.hf is None:
        raise UsageError("nothing to read: give the folder of a run, FILE.py:function, or --hf with a folder or name")
    if options.rank is not None:
        raise UsageError("--rank chooses one of the ranks of a saved run: a model is run in this process")
    import torch

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad):
        return api.fx_debug(model, inputs)


def model_or_run(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the model and its inputs, or a saved run and no inputs, where the target is a folder."""
    if options.target is not None and options.hf is None and Path(options.target).is_dir():
        return load_run(options.target, options), ()
    return chosen_model(options)


@contextlib.contextmanager
def partial_shown() -> Iterator[None]:
    """Print the measurements up to the model's exception, which is then raised again."""
    try:
        yield
    except FxDebugError:
        raise
    except Exception:
        partial = api.last_failed_report()
        if partial is not None:
            print(partial.text())
        raise


def loss_of(options: argparse.Namespace) -> Any:
    """Return the loss of ``--backward``: the mean of the first floating tensor that the model returns."""
    return api.mean_of_output if options.backward else None


def saved_run(model: Any, inputs: Any, options: argparse.Namespace) -> Trace | None:
    """Return the run to attach measures to: ``--save`` runs the model and saves it, ``--into`` is a saved run.

    Raises ``UsageError`` where both are given.
    """
    if options.save and options.into:
        raise UsageError(f"give either --save {options.save} or --into {options.into}: the run is new, or there is one")
    if options.save:
        return api.fx_debug(model, inputs, save=options.save)
    return load_run(options.into, options) if options.into else None


def attach(run: Trace | None, reports: list[Report[Any]], options: argparse.Namespace) -> None:
    """Attach the measures of reports to a run, if there is one, and write them beside it."""
    if run is None:
        return
    path = api.save_measures(run.with_measures(reports))
    if form_of(options) == "text":
        print(f"\nmeasures saved to {path}; look at them with: fxdebug measures {Path(path).parent}")


def show_report(report: Report[Any] | ReportData[Any], options: argparse.Namespace) -> int:
    """Print a report in the form that was asked for, and write it to a file; the status is that of ``--fail-on``.

    With ``--against`` it is compared with an earlier one, and the file holds the report itself.
    """
    if not isinstance(report, api.Report):
        report = api.Report.of(report)
    form, made = form_of(options), report
    if options.against is not None:
        report = report.compare(options.against)
    if form == "json":
        print(report.json_text(), end="")
    elif form == "csv":
        print(report.csv_text(), end="")
    else:
        print(report.text(rows=None if options.all else options.rows))
    if options.output:
        path = Path(options.output)
        written = made.plot(path) if path.suffix.lower() in PICTURES else made.export(path)
        if form == "text":
            print(f"\nwrote {written}")
    return FAILED if api.fails(report.findings, options.fail_on, report.analysis) else OK
