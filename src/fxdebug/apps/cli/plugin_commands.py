"""The commands ``plugins`` and ``analyse``: the functions that other packages add."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.parts import OK, form_of, load_run, show_report
from fxdebug.apps.cli.export_commands import chosen_options


def plugins(options: argparse.Namespace) -> int:
    """List the exporters, analyses, measures and rules that installed packages add, and those that do not work."""
    form = form_of(options)
    text = {"text": api.plugins_text, "json": api.plugins_json, "csv": api.plugins_csv}[form]
    print(text())
    return OK


def analyse(options: argparse.Namespace) -> int:
    """Ask an analysis of another package about a saved run."""
    return show_report(
        api.analyse(load_run(options.run, options), options.name, chosen_options(options.option)), options
    )
