"""The table ``[tool.fxdebug]`` of the nearest ``pyproject.toml``: rules that are off, and thresholds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fxdebug.errors import LoadError, UsageError, nearest
from fxdebug.files.read_file import read_text

FILE = "pyproject.toml"
KEYS = ("off", "limits")


@dataclass(frozen=True)
class ProjectSettings:
    """Settings of a project: ``off`` are names of rules, ``limits`` numbers by the name of a threshold."""

    path: Path
    off: tuple[str, ...] = ()
    limits: Mapping[str, object] = field(default_factory=dict)


def read_project_settings(folder: Path) -> ProjectSettings | None:
    """Return what the nearest ``pyproject.toml`` in a folder or above it sets, ``None`` where that has no such table.

    Raises ``UsageError`` for a file that is damaged and for keys or types that are not known; the names of rules and
    thresholds are not looked up.
    """
    path = next((each / FILE for each in (folder, *folder.parents) if (each / FILE).is_file()), None)
    if path is None:
        return None
    try:
        content = tomllib.loads(read_text(path, "TOML"))
    except (LoadError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    tool = content.get("tool", {})
    table = tool.get("fxdebug") if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.fxdebug is no table")
    unknown = next((key for key in table if key not in KEYS), None)
    if unknown is not None:
        raise UsageError(f"{path}: [tool.fxdebug] has {unknown!r}: use off or limits.{nearest(unknown, KEYS)}")
    off, limits = table.get("off", []), table.get("limits", {})
    if not isinstance(off, list) or not all(isinstance(name, str) for name in off):
        raise UsageError(f"{path}: [tool.fxdebug] off is no list of rules, such as off = ['dead unit']")
    if not isinstance(limits, dict):
        raise UsageError(f"{path}: [tool.fxdebug.limits] is no table of numbers, such as activations.massive = 200")
    return ProjectSettings(path, tuple(off), _flat(limits))


def _flat(limits: Mapping[str, object]) -> dict[str, object]:
    """Return tables of numbers by dotted names: TOML reads ``attention.leak = 1`` as a table in a table.

    >>> _flat({"attention": {"leak": 1}, "numbers.headroom": 2})
    {'attention.leak': 1, 'numbers.headroom': 2}
    """
    flat: dict[str, object] = {}
    for name, content in limits.items():
        if isinstance(content, dict):
            flat.update({f"{name}.{inner}": number for inner, number in content.items()})
        else:
            flat[name] = content
    return flat
