"""The command ``measures``, and the options that attach measures to saved runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug import api
from fxdebug.apps.cli.commands import OK, form_of, load_run
from fxdebug.errors import UsageError

if TYPE_CHECKING:
    from fxdebug.api import Report, Trace


def measures(options: argparse.Namespace) -> int:
    """List every measure with its unit and meaning, or those of a saved run."""
    run = None if options.run is None else load_run(options.run, options)
    form = form_of(options)
    if form == "json":
        print(api.measures_json(run))
    else:
        print(api.measures_csv(run) if form == "csv" else api.measures_text(run, width=options.width))
    return OK


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
