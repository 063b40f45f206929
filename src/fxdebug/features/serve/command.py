"""The command ``serve``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from fxdebug.api.commands.parts import OK
from fxdebug.plugins.command import OPEN, Command, argument, integer_from


def serve(options: argparse.Namespace) -> int:
    """Show the runs of a folder in the browser, including those still being written, until Ctrl-C."""
    from fxdebug.features.serve.server import Server

    with Server(Path(options.folder), options.port) as server:
        print(f"{server.url}\nshows the runs in {server.folder}, on this machine only; Ctrl-C stops", flush=True)
        if options.open:
            webbrowser.open(server.url)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            print()
    return OK


COMMANDS = (
    Command(
        serve,
        (
            argument("folder", metavar="DIR", nargs="?", default=".", help="the folder with runs (default: this one)"),
            argument(
                "--port",
                type=integer_from(0),
                default=8080,
                metavar="N",
                help="the port on 127.0.0.1 (default: 8080; 0: any free one)",
            ),
            OPEN,
        ),
        place=90,
    ),
)
