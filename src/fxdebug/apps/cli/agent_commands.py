"""The command ``mcp``: answers for agents."""

from __future__ import annotations

import argparse
from pathlib import Path

from fxdebug.apps.cli.commands import OK
from fxdebug.apps.signals import end_at_once


def mcp(options: argparse.Namespace) -> int:
    """Serve a folder of runs to an agent, by the Model Context Protocol on standard input and output."""
    from fxdebug.apps.agents.mcp_server import server_of

    server = server_of(Path(options.folder))
    end_at_once()
    server.run("stdio")
    return OK
