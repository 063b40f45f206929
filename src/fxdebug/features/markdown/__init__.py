"""Runs and comparisons as Markdown, for an issue or a pull request."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="markdown",
    exporters={
        ("trace", ".md"): "fxdebug.features.markdown.run:write_run",
        ("comparison", ".md"): "fxdebug.features.markdown.run:write_comparison",
    },
)
