"""The commands of `fxdebug` for the browser: page and serve."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from fxdebug import api
from fxdebug.api.commands.parts import OK, load_run
from fxdebug.errors import UsageError
from fxdebug.plugins.features import folder_kind


def page(options: argparse.Namespace) -> int:
    """Write the page of a saved run or of a watched training: one HTML file that works offline."""
    path = Path(options.output)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {options.output}: a page is an .html file; fxdebug graph writes pictures")
    if folder_kind(Path(options.run)) is not None:
        written = api.export_training(options.run, path.with_suffix(".html"))
    else:
        written = load_run(options.run, options).export(
            path.with_suffix(".html"), check=False if options.no_check else None
        )
    print(f"wrote {written}")
    if options.open:
        webbrowser.open(written.resolve().as_uri())
    return OK
