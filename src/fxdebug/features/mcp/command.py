"""The command ``mcp``: answers for agents."""

from __future__ import annotations

import argparse
from pathlib import Path

from fxdebug.api.commands.parts import OK
from fxdebug.api.commands.signals import end_at_once
from fxdebug.plugins.command import Command, argument


def mcp(options: argparse.Namespace) -> int:
    """Serve a folder of runs to an agent, by the Model Context Protocol on standard input and output."""
    from fxdebug.features.mcp.mcp_server import server_of

    server = server_of(Path(options.folder))
    end_at_once()
    server.run("stdio")
    return OK


COMMANDS = (
    Command(mcp, (argument("folder", metavar="DIR", help="the folder that has the runs, at any depth"),), place=210),
)
