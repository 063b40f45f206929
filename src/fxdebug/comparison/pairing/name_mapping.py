"""The user's mapping from paths of a to paths of b, and the modules to ignore."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fxdebug.errors import LoadError, UsageError, nearest, needs

NameMapping = Mapping[str, str]


def renamed_paths(
    mapping: NameMapping | str | os.PathLike[str] | None, paths: Iterable[str], others: Iterable[str]
) -> NameMapping:
    """Return the path in b of each path of a that the user maps.

    ``mapping`` has globs of a as keys and globs of b as values. The text that a ``*`` matches, which may span dots,
    replaces the ``*`` on the right. The first line that fits a path counts. ``mapping`` may also be the name of a YAML
    or JSON file with such a table (under ``mapping:`` where it has several). Raises ``UsageError`` for a line that
    fits nothing.

    >>> renamed_paths({"encoder.layer.*": "layers.*"}, ["encoder.layer.0.output"], ["layers.0.output"])
    {'encoder.layer.0.output': 'layers.0.output'}
    """
    known = list(dict.fromkeys(paths))
    renamed: dict[str, str] = {}
    rules = read_mapping(mapping)[0] if isinstance(mapping, (str, os.PathLike)) else dict(mapping or {})
    targets = list(dict.fromkeys(others))
    for left, right in rules.items():
        pattern = re.compile("(.*)".join(map(re.escape, left.split("*"))))
        fitting = [(path, match) for path in known if (match := pattern.fullmatch(path)) is not None]
        if not fitting:
            raise UsageError(f"mapping {left!r}: no module of a has such a path.{nearest(left, known)}")
        if left.count("*") != right.count("*"):
            raise UsageError(f"mapping {left!r} → {right!r}: both sides need the same number of *")
        if not any(fnmatch.fnmatchcase(path, right) for path in targets):
            raise UsageError(f"mapping {left!r} → {right!r}: no module of b has such a path.{nearest(right, targets)}")
        for path, match in fitting:
            renamed.setdefault(path, _fill_wildcards(right, match.groups()))
    return renamed


def _fill_wildcards(pattern: str, parts: Sequence[str]) -> str:
    """Replace the wildcards of a pattern, one after the other."""
    pieces = pattern.split("*")
    return pieces[0] + "".join(part + piece for part, piece in zip(parts, pieces[1:]))


def read_mapping(path: str | os.PathLike[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the mapping and the ignore rules in a YAML (or JSON) file.

    Raises ``LoadError`` for a file that is neither, ``MissingExtra`` where no YAML reader is installed.
    """
    place = Path(path)
    try:
        text = place.read_text()
    except OSError as error:
        raise LoadError(f"cannot read the mapping {place}: {error.strerror or error}") from error
    table = _parse_file(text, place)
    if not isinstance(table, dict):
        raise LoadError(f"{place} holds no table: write lines such as 'encoder.layer.*: layers.*'")
    sections = "mapping" in table or "ignore" in table
    ignore = table.get("ignore", ()) if sections else ()
    rules = (table.get("mapping") or {}) if sections else table
    if not isinstance(rules, dict) or not all(isinstance(side, str) for pair in rules.items() for side in pair):
        raise LoadError(f"{place}: mapping must be a table of paths, such as 'encoder.layer.*: layers.*'")
    if isinstance(ignore, str) or not all(isinstance(glob, str) for glob in ignore):
        raise LoadError(f"{place}: ignore must be a list of paths")
    return rules, tuple(ignore)


def _parse_file(text: str, place: Path) -> Any:
    if place.suffix == ".json":
        import json

        try:
            return json.loads(text)
        except ValueError as error:
            raise LoadError(f"{place} is no JSON: {error}") from error
    try:
        import yaml
    except ImportError:
        raise needs("reading a mapping in YAML", "pyyaml", "yaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LoadError(f"{place} is no YAML: {error}") from error


def is_ignored(path: str, globs: Iterable[str]) -> bool:
    """Is a path covered by one of the ignore rules?"""
    return any(fnmatch.fnmatchcase(path, glob) for glob in globs)
