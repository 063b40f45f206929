"""Step through a run: ``debug``, ``post_mortem``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="console",
    functions={
        "debug": "fxdebug.features.console.start_live:debug",
        "post_mortem": "fxdebug.features.console.start:post_mortem",
    },
    commands="fxdebug.features.console.command:COMMANDS",
)
