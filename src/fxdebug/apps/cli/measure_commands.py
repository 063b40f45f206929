"""The command ``measures``, and the options that attach measures to saved runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.api.commands.parts import OK, form_of, load_run

if TYPE_CHECKING:
    pass


def measures(options: argparse.Namespace) -> int:
    """List every measure with its unit and meaning, or those of a saved run."""
    run = None if options.run is None else load_run(options.run, options)
    form = form_of(options)
    if form == "json":
        print(api.measures_json(run))
    else:
        print(api.measures_csv(run) if form == "csv" else api.measures_text(run, width=options.width))
    return OK
