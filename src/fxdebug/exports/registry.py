"""Which suffix is written by which function. An exporter is ``(trace, path, **options) → Path``.

Comparisons have a table of their own in ``comparisons``, and the same promises.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fxdebug.errors import SaveError, UsageError

EXPORTERS = {
    ".dot": "fxdebug.exports.graphviz.dot:write_dot",
    ".gv": "fxdebug.exports.graphviz.dot:write_dot",
    ".svg": "fxdebug.exports.graphviz.render:write_picture",
    ".png": "fxdebug.exports.graphviz.render:write_picture",
    ".pdf": "fxdebug.exports.graphviz.render:write_picture",
    ".graphml": "fxdebug.exports.graphml:write_graphml",
    ".json": "fxdebug.exports.graphml:write_json",
    ".html": "fxdebug.exports.html:write_page",
    ".txt": "fxdebug.exports.text:write_text",
}


def exporter(suffix: str, table: Mapping[str, str] = EXPORTERS) -> Callable[..., Path]:
    """The function for a suffix. Raises ``UsageError`` naming the ones there are."""
    where = table.get(suffix.lower())
    if where is None:
        raise UsageError(f"nothing exports to {suffix or 'a file without suffix'!r}: use {', '.join(table)}")
    module, _, name = where.partition(":")
    found: Callable[..., Path] = getattr(importlib.import_module(module), name)
    return found


def export(thing: Any, path: Path, *, table: Mapping[str, str] = EXPORTERS, **options: Any) -> Path:
    """Write ``path`` by its suffix; raises ``UsageError`` for an option its exporter does not have."""
    write = exporter(path.suffix, table)
    known = [name for name in inspect.signature(write).parameters if name not in ("trace", "comparison", "path")]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UsageError(f"{path.suffix} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write(thing, path, **options)
    except OSError as error:
        if isinstance(error, SaveError):
            raise
        raise SaveError(f"cannot write {path}: {error.strerror or error}") from error
