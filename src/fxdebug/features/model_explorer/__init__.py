"""Runs and comparisons for Model Explorer."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="model_explorer",
    exporters={
        ("trace", "model-explorer"): "fxdebug.features.model_explorer.run:write_model_explorer",
        ("comparison", "model-explorer"): "fxdebug.features.model_explorer.comparison:write_model_explorer",
    },
)
