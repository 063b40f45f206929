"""Pages of the runs in a folder: ``fxdebug serve``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="serve",
    commands="fxdebug.features.serve.command:COMMANDS",
)
