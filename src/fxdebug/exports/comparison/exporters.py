"""The exporters of a comparison by suffix. An exporter is ``(comparison, path, **options) → Path``."""

from __future__ import annotations

EXPORTERS = {
    ".svg": "fxdebug.exports.comparison.graph:write_picture",
    ".png": "fxdebug.exports.comparison.graph:write_picture",
    ".pdf": "fxdebug.exports.comparison.graph:write_picture",
    ".dot": "fxdebug.exports.comparison.graph:write_dot",
    ".gv": "fxdebug.exports.comparison.graph:write_dot",
    ".csv": "fxdebug.exports.comparison.table:write_csv",
    ".json": "fxdebug.exports.comparison.table:write_json",
    ".txt": "fxdebug.exports.comparison.text:write_text",
    ".html": "fxdebug.exports.comparison.text:write_page",
}
