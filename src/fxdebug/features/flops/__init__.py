"""Floating point operations: ``flops``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="flops",
    functions={"flops": "fxdebug.features.flops.run:flops"},
    pictures={"flops": "fxdebug.features.flops.picture:draw"},
    commands="fxdebug.features.flops.command:COMMANDS",
)
