"""Advice that was tried: ``tune``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="tune",
    functions={"tune": "fxdebug.features.tune.run:tune"},
    pictures={"tune": "fxdebug.features.tune.picture:draw"},
    texts={"tune": "fxdebug.features.tune.report:text"},
    commands="fxdebug.features.tune.command:COMMANDS",
)
