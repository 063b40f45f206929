"""The table of all exporters: the function that writes a trace or a comparison, for each suffix.

An exporter takes ``(thing, path, **options)``, or ``(thing, path, options)`` where ``options`` is a dataclass, and
returns the path. Its module is imported when it is used.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fxdebug.errors import SaveError, UsageError

Kind: TypeAlias = Literal["trace", "comparison", "report"]

EXPORTERS: dict[tuple[Kind, str], str] = {
    ("trace", ".dot"): "fxdebug.exports.graphviz.dot:write_dot",
    ("trace", ".gv"): "fxdebug.exports.graphviz.dot:write_dot",
    ("trace", ".svg"): "fxdebug.exports.graphviz.render:write_picture",
    ("trace", ".png"): "fxdebug.exports.graphviz.render:write_picture",
    ("trace", ".pdf"): "fxdebug.exports.graphviz.render:write_picture",
    ("trace", ".graphml"): "fxdebug.exports.graphml:write_graphml",
    ("trace", ".json"): "fxdebug.exports.graphml:write_json",
    ("trace", ".html"): "fxdebug.exports.html:write_page",
    ("trace", ".txt"): "fxdebug.exports.text:write_text",
    ("comparison", ".svg"): "fxdebug.exports.comparison.graph:write_picture",
    ("comparison", ".png"): "fxdebug.exports.comparison.graph:write_picture",
    ("comparison", ".pdf"): "fxdebug.exports.comparison.graph:write_picture",
    ("comparison", ".dot"): "fxdebug.exports.comparison.graph:write_dot",
    ("comparison", ".gv"): "fxdebug.exports.comparison.graph:write_dot",
    ("comparison", ".csv"): "fxdebug.exports.comparison.table:write_csv",
    ("comparison", ".json"): "fxdebug.exports.comparison.table:write_json",
    ("comparison", ".txt"): "fxdebug.exports.comparison.text:write_text",
    ("comparison", ".html"): "fxdebug.exports.comparison.text:write_page",
    ("report", ".csv"): "fxdebug.exports.report.files:write_csv",
    ("report", ".json"): "fxdebug.exports.report.files:write_json",
    ("report", ".timeline"): "fxdebug.exports.report.timelines:write_timeline",
    ("report", ".txt"): "fxdebug.exports.report.text:write_text",
    ("report", ".png"): "fxdebug.exports.report.plot:write_picture",
    ("report", ".svg"): "fxdebug.exports.report.plot:write_picture",
    ("report", ".pdf"): "fxdebug.exports.report.plot:write_picture",
}


def suffixes(kind: Kind) -> list[str]:
    """Return the suffixes of the files that a trace or a comparison can be written to."""
    return [suffix for known, suffix in EXPORTERS if known == kind]


def exporter(kind: Kind, suffix: str) -> Callable[..., Path]:
    """Return the function that writes files of a suffix; raises ``UsageError`` with the suffixes there are."""
    place = EXPORTERS.get((kind, suffix.lower()))
    if place is None:
        what = suffix or "a file without suffix"
        raise UsageError(f"nothing exports to {what!r}: use {', '.join(suffixes(kind))}")
    module, _, name = place.partition(":")
    function: Callable[..., Path] = getattr(importlib.import_module(module), name)
    return function


def option_names(function: Callable[..., Path]) -> list[str]:
    """Return the names of an exporter's options: its parameters after the path, or the fields of their dataclass."""
    _, _, *parameters = inspect.signature(function).parameters.values()
    defaults = _defaults(parameters)
    return [field.name for field in fields(defaults)] if defaults is not None else [p.name for p in parameters]


def _defaults(parameters: list[inspect.Parameter]) -> Any:
    """Return the default of the one parameter that takes a dataclass of options, or ``None``."""
    default = parameters[0].default if len(parameters) == 1 else None
    return default if is_dataclass(default) else None


def export(kind: Kind, thing: object, path: Path, *, suffix: str | None = None, **options: Any) -> Path:
    """Write ``path`` by its suffix, or in the format of another ``suffix``.

    Raises ``UsageError`` for an option that its exporter does not have.
    """
    write = exporter(kind, path.suffix if suffix is None else suffix)
    known = option_names(write)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UsageError(f"{path.suffix} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    defaults = _defaults(list(inspect.signature(write).parameters.values())[2:])
    arguments = options if defaults is None else {"options": replace(defaults, **options)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write(thing, path, **arguments)
    except OSError as error:
        if isinstance(error, SaveError):
            raise
        raise SaveError(f"cannot write {path}: {error.strerror or error}") from error
