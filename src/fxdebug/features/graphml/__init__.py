"""The graph of a run as GraphML, GEXF and node-link JSON, for Gephi, yEd and networkx."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="graphml",
    exporters={
        ("trace", ".graphml"): "fxdebug.features.graphml.run:write_graphml",
        ("trace", ".json"): "fxdebug.features.graphml.run:write_json",
        ("trace", ".gexf"): "fxdebug.features.graphml.run:write_gexf",
    },
)
