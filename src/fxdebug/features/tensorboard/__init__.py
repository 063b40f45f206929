"""Runs, reports and trainings for TensorBoard."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="tensorboard",
    exporters={
        ("trace", "tensorboard"): "fxdebug.features.tensorboard.log:write_trace",
        ("report", "tensorboard"): "fxdebug.features.tensorboard.log:write_report",
        ("training", "tensorboard"): "fxdebug.features.tensorboard.log:write_training",
    },
)
