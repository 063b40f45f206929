"""The times of calls and operations: ``profile``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="profile",
    functions={"profile": "fxdebug.features.profile.run:profile"},
    on_model="fxdebug.features.profile.run:on_model",
    needs=("inputs", "forward"),
    asked_for=True,
    rules="fxdebug.features.profile.rules:BOOK",
    measures=("fxdebug.features.profile.report",),
    pictures={"profile": "fxdebug.features.profile.picture:draw"},
    commands="fxdebug.features.profile.command:COMMANDS",
)
