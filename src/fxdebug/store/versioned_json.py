"""Read a JSON file that begins with the name and the version of its format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fxdebug.errors import LoadError
from fxdebug.files.read_file import read_text
from fxdebug.files.schema import shown
from fxdebug.store.deep_json import loads


def read_versioned(path: Path, kind: str, named: str, version: int, older: str) -> dict[str, Any]:
    """Return the object in a file, gzipped or not, whose ``format`` is ``named`` and whose version is this one.

    ``kind`` says what the file should be, ``older`` what to do about a file of an older version.
    Raises ``LoadError`` for a file that is no such object, is damaged, or has another version.
    """
    text = read_text(path, kind)
    try:
        content = loads(text)
    except ValueError as error:
        if text.lstrip().startswith("{") and f'"{named}"' in text[:200]:
            raise LoadError(f"{path} is cut short or damaged: {error}") from error
        raise LoadError(f"{path} is not {kind}: {error}") from error
    if not isinstance(content, dict) or content.get("format") != named:
        raise LoadError(f'{path} is not {kind} of fxdebug: it has no "format": "{named}"')
    require_version(path, content.get("version"), version, older)
    return content


def require_version(path: Path, found: object, version: int, older: str) -> None:
    """Raise ``LoadError`` unless the version of a file's format is this one; ``older`` says what to do about an older.

    >>> require_version(Path("trace.json"), 2, 1, "trace the model again")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fxdebug.errors.LoadError: trace.json has format version 2, ... is newer than this fxdebug, upgrade with pip ...
    """
    if type(found) is int and found == version:
        return
    if type(found) is not int:
        advice = "the file is damaged"
    elif found > version:
        advice = "the file is newer than this fxdebug, upgrade with pip install -U fxdebug"
    else:
        advice = f"the file is older than this fxdebug, {older}"
    has = "no format version" if found is None else f"format version {shown(found)}"
    raise LoadError(f"{path} has {has}, this fxdebug reads version {version}: {advice}")
