"""The user's mapping from paths of a to paths of b, and the modules to ignore."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fxdebug.data.trace import TraceData
from fxdebug.errors import LoadError, UsageError, nearest, needs
from fxdebug.files.read_file import read_text
from fxdebug.files.schema import Damaged, mappings, optional, record, texts, tuples

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
        fitting = [(path, parts) for path in known if (parts := _wildcard_parts(left, path)) is not None]
        if not fitting:
            raise UsageError(f"mapping {left!r}: no module of a has such a path.{nearest(left, known)}")
        if left.count("*") != right.count("*"):
            raise UsageError(f"mapping {left!r} → {right!r}: both sides need the same number of *")
        if not any(fnmatch.fnmatchcase(path, right) for path in targets):
            raise UsageError(f"mapping {left!r} → {right!r}: no module of b has such a path.{nearest(right, targets)}")
        for path, parts in fitting:
            renamed.setdefault(path, _fill_wildcards(right, parts))
    return renamed


def _wildcard_parts(pattern: str, path: str) -> list[str] | None:
    """Return the texts that the ``*`` of a pattern match, the first ones as long as possible; ``None`` if none fit.

    Pieces between wildcards are looked for from the end, each once: a regular expression may try all combinations.

    >>> _wildcard_parts("*.layer.*", "a.layer.0.layer.1"), _wildcard_parts("a*", "b")
    (['a.layer.0', '1'], None)
    """
    first, *pieces = pattern.split("*")
    if not pieces:
        return [] if path == pattern else None
    end = len(path) - len(pieces[-1])
    if end < len(first) or not path.startswith(first) or not path.endswith(pieces[-1]):
        return None
    parts = []
    for piece in reversed(pieces[:-1]):
        at = path.rfind(piece, len(first), end)
        if at < 0:
            return None
        parts.append(path[at + len(piece) : end])
        end = at
    return [path[len(first) : end], *reversed(parts)]


def _fill_wildcards(pattern: str, parts: Sequence[str]) -> str:
    """Replace the wildcards of a pattern, one after the other."""
    pieces = pattern.split("*")
    return pieces[0] + "".join(part + piece for part, piece in zip(parts, pieces[1:]))


def read_mapping(path: str | os.PathLike[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the mapping and the ignore rules in a YAML (or JSON) file.

    Raises ``LoadError`` for a file that is neither, ``MissingExtra`` where no YAML reader is installed.
    """
    place = Path(path)
    table = _parse_file(read_text(place, "a mapping"), place)
    if not isinstance(table, dict):
        raise LoadError(f"{place} holds no table: write lines such as 'encoder.layer.*: layers.*'")
    if "mapping" not in table and "ignore" not in table:
        table = {"mapping": table}
    try:
        found = record(table, "", _SECTIONS, {"mapping": None, "ignore": None})
        rules = found["mapping"] or {}
        texts(list(rules), lambda i: "a path in mapping")
    except Damaged as error:
        raise LoadError(
            f"{place}: {error}; mapping is a table of paths, such as 'encoder.layer.*: layers.*', ignore a list of them"
        ) from None
    return rules, found["ignore"] or ()


_SECTIONS = {"mapping": optional(mappings(texts)), "ignore": optional(tuples(texts))}


def _parse_file(text: str, place: Path) -> Any:
    if place.suffix == ".json":
        import json

        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LoadError(f"{place} is no JSON: {error}") from error
    try:
        import yaml
    except ImportError:
        raise needs("reading a mapping in YAML", "pyyaml", "yaml") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LoadError(f"{place} is no YAML: {error}") from error


def paths_in_wrapper(a: TraceData, b: TraceData) -> dict[str, str]:
    """Return the path in one run of each path in the other, where one model holds the other as a module; else nothing.

    Such a wrapper generates, streams or gives a loss; its module has the class and the modules of the other model.
    """
    wrapped = _wrapped_in(b, a)
    if wrapped:
        return {path: f"{wrapped}.{path}" for path in a.modules if path}
    wrapped = _wrapped_in(a, b)
    return {f"{wrapped}.{path}": path for path in b.modules if path} if wrapped else {}


def _wrapped_in(outer: TraceData, inner: TraceData) -> str:
    """Return the path at which a model holds another one; empty where it does not, or where two places do."""
    if outer.root.type == inner.root.type:
        return ""
    paths = [path for path, kind in outer.modules.items() if path and kind == inner.root.type]
    fitting = [
        path
        for path in paths
        if all(outer.modules.get(f"{path}.{name}") == kind for name, kind in inner.modules.items() if name)
    ]
    return fitting[0] if len(fitting) == 1 else ""


def is_ignored(path: str, globs: Iterable[str]) -> bool:
    """Is a path covered by one of the ignore rules?"""
    return any(fnmatch.fnmatchcase(path, glob) for glob in globs)
