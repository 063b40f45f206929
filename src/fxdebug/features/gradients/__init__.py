"""The gradients of one step: ``gradients``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="gradients",
    functions={
        "gradients": "fxdebug.features.gradients.run:gradients",
        "compare_gradients": "fxdebug.features.gradients.compare_run:compare_gradients",
    },
    on_model="fxdebug.features.gradients.run:on_model",
    needs=("inputs", "loss", "forward"),
    beside="fxdebug.features.gradients.compared.beside:gradients_beside",
    rules="fxdebug.features.gradients.rules:BOOK",
    measures=("fxdebug.features.gradients.report",),
    pictures={"gradients": "fxdebug.features.gradients.picture:draw"},
    commands="fxdebug.features.gradients.command:COMMANDS",
)
