"""The weights of a model, and of two checkpoints: ``weights``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="weights",
    functions={"weights": "fxdebug.features.weights.run:weights"},
    on_model="fxdebug.features.weights.run:on_model",
    needs=(),
    rules="fxdebug.features.weights.rules:BOOK",
    measures=("fxdebug.features.weights.report", "fxdebug.features.weights.changed.changes"),
    pictures={"weights": "fxdebug.features.weights.picture:draw"},
    commands="fxdebug.features.weights.command:COMMANDS",
)
