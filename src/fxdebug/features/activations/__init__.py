"""The distribution of what modules return: ``activations``; one tensor as a picture: ``heatmap``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="activations",
    functions={
        "activations": "fxdebug.features.activations.run:activations",
        "heatmap": "fxdebug.features.activations.run:heatmap",
    },
    further={"ActivationReport": "fxdebug.features.activations.run:ActivationReport"},
    on_model="fxdebug.features.activations.run:on_model",
    on_run="fxdebug.features.activations.run:on_run",
    needs=("inputs", "tensors"),
    rules="fxdebug.features.activations.rules:BOOK",
    measures=("fxdebug.features.activations.report",),
    pictures={"activations": "fxdebug.features.activations.picture:draw_histograms"},
    exporters={
        ("matrix", ".png"): "fxdebug.features.activations.picture:write_heatmap",
        ("matrix", ".svg"): "fxdebug.features.activations.picture:write_heatmap",
        ("matrix", ".pdf"): "fxdebug.features.activations.picture:write_heatmap",
    },
    commands="fxdebug.features.activations.command:COMMANDS",
)
