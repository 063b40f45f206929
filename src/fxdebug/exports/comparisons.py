"""Which suffix a comparison is written by. An exporter is ``(comparison, path, **options) → Path``."""

from __future__ import annotations

EXPORTERS = {
    ".svg": "fxdebug.exports.comparison_graph:write_picture",
    ".png": "fxdebug.exports.comparison_graph:write_picture",
    ".pdf": "fxdebug.exports.comparison_graph:write_picture",
    ".dot": "fxdebug.exports.comparison_graph:write_dot",
    ".gv": "fxdebug.exports.comparison_graph:write_dot",
    ".csv": "fxdebug.exports.comparison_rows:write_csv",
    ".json": "fxdebug.exports.comparison_rows:write_json",
    ".txt": "fxdebug.exports.comparison_text:write_text",
    ".html": "fxdebug.exports.comparison_text:write_page",
}
