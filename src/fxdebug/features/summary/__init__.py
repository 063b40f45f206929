"""The calls of a run with shapes and parameters: ``summary``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="summary",
    functions={"summary": "fxdebug.features.summary.run:summary"},
    pictures={"summary": "fxdebug.features.summary.picture:draw"},
    commands="fxdebug.features.summary.command:COMMANDS",
)
