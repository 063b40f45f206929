"""A model as ONNX: ``export_onnx``; the graph of a run for Netron."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="onnx",
    functions={"export_onnx": "fxdebug.features.onnx.export:export_onnx"},
    exporters={
        ("trace", ".onnx"): "fxdebug.features.onnx.run:write_onnx",
        ("trace", "netron"): "fxdebug.features.onnx.run:write_onnx",
    },
)
