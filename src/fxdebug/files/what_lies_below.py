"""Say in which folders below one lies what was looked for in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

MOST = 3  # folders that are named


def told_below(folder: Path, patterns: Iterable[str], what: str) -> str:
    """Return where files lie whose names match a pattern, one level below a folder; empty where there are none.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a").mkdir()
    >>> told_below(folder, ["*.json"], "runs")
    ''
    >>> _ = (folder / "a" / "x.json").write_text("")
    >>> told_below(folder, ["*.json"], "runs") == f"runs lie below it: {folder / 'a'}"
    True
    """
    found = sorted({file.parent for pattern in patterns for file in folder.glob(f"*/{pattern}")})
    further = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"{what} lie below it: {', '.join(map(str, found[:MOST]))}{further}" if found else ""
