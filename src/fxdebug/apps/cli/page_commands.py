"""The commands of `fxdebug` for the browser: page and serve."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from fxdebug.apps.cli.commands import OK, load_run
from fxdebug.errors import UsageError


def page(options: argparse.Namespace) -> int:
    """Write the page of a saved run: one HTML file that shows all of it, without network."""
    path = Path(options.output)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {options.output}: a page is an .html file; fxdebug graph writes pictures")
    trace = load_run(options.run, options)
    written = trace.export(path.with_suffix(".html"), check=not options.no_check)
    print(f"wrote {written}")
    if options.open:
        webbrowser.open(written.resolve().as_uri())
    return OK


def serve(options: argparse.Namespace) -> int:
    """Show the runs of a folder in the browser, also while they are written, until Ctrl-C."""
    from fxdebug.apps.serve.server import Server

    with Server(Path(options.folder), options.port) as server:
        print(f"{server.url}\nshows the runs in {server.folder}, on this machine only; Ctrl-C stops", flush=True)
        if options.open:
            webbrowser.open(server.url)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            print()
    return OK
