"""The text of source lines, read while the program runs and stored with its trace.

A trace names lines (``model.py:12``). Their text is taken from the program's own files, never from those of the machine
on which the trace is read: a trace from elsewhere could name any file.
"""

from __future__ import annotations

import linecache
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

MOST_BYTES = 16 * 1024 * 1024  # of a file with source text
LONGEST = 200  # characters kept of a line


class SourceText(Mapping[str, str]):
    """The text of lines, by their names. The files of ``sources`` are read now, others when a line is asked for."""

    def __init__(self, sources: Iterable[str | None]) -> None:
        self._files: dict[str, list[str]] = {}
        for file in {source.rpartition(":")[0] for source in sources if source is not None}:
            self._lines(file)

    def __getitem__(self, source: str) -> str:
        file, _, number = source.rpartition(":")
        lines = self._lines(file) if number.isascii() and number.isdigit() and len(number) < 10 else []
        text = lines[int(number) - 1].strip() if lines and 0 < int(number) <= len(lines) else ""
        if not text:
            raise KeyError(source)
        return text[:LONGEST]

    def __iter__(self) -> Iterator[str]:
        return (f"{file}:{number}" for file, lines in self._files.items() for number in range(1, len(lines) + 1))

    def __len__(self) -> int:
        return sum(map(len, self._files.values()))

    def _lines(self, file: str) -> list[str]:
        lines = self._files.get(file)
        if lines is None:
            lines = self._files[file] = _lines_of_file(file)
        return lines


def _lines_of_file(file: str) -> list[str]:
    """Return the lines of a file of the program; none for one that is not regular, or longer than any source."""
    try:
        status = Path(file).stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            return []
        linecache.checkcache(file)  # it may have been edited since it was read
    except (OSError, ValueError):
        pass  # code without a file: a notebook puts its text into the cache
    return linecache.getlines(file)
