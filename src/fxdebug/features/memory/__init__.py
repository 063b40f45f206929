"""The memory of a run, its peak and leaks: ``memory``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="memory",
    functions={"memory": "fxdebug.features.memory.run:memory"},
    measures=("fxdebug.features.memory.report",),
    pictures={"memory": "fxdebug.features.memory.picture:draw"},
    commands="fxdebug.features.memory.command:COMMANDS",
)
