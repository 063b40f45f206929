"""Diagrams that other programs lay out: DOT for Graphviz, which draws it, and Mermaid."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="diagrams",
    exporters={
        ("trace", ".dot"): "fxdebug.features.diagrams.dot:write_dot",
        ("trace", ".gv"): "fxdebug.features.diagrams.dot:write_dot",
        ("trace", ".mmd"): "fxdebug.features.diagrams.mermaid:write_mermaid",
        ("comparison", ".dot"): "fxdebug.features.diagrams.comparison:write_dot",
        ("comparison", ".gv"): "fxdebug.features.diagrams.comparison:write_dot",
    },
    layouts={
        ("trace", "dot"): "fxdebug.features.diagrams.render:write_picture",
        ("comparison", "dot"): "fxdebug.features.diagrams.comparison:write_picture",
    },
)
