"""Tools that let an agent ask about runs: ``fxdebug mcp``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="mcp",
    commands="fxdebug.features.mcp.command:COMMANDS",
)
