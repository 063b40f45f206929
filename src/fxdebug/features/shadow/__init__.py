"""A run in float64 beside the model, and where rounding errors grow: ``shadow``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="shadow",
    functions={"shadow": "fxdebug.features.shadow.run:shadow"},
    on_model="fxdebug.features.shadow.run:on_model",
    needs=("inputs", "forward"),
    asked_for=True,
    rules="fxdebug.features.shadow.rules:BOOK",
    measures=("fxdebug.features.shadow.precision_loss",),
    texts={"shadow": "fxdebug.features.shadow.precision_loss:text"},
)
