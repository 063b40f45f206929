"""Cut an answer into pages that fit an agent's context, and tell how to ask for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxdebug.errors import UsageError
from fxdebug.printable import printable_lines

TOKENS: Final = 2000  # of one answer, unless more are asked for
CHARACTERS: Final = 2.5  # a token, at the least: names and numbers take more tokens than prose
_FOOTER = 240  # characters that the line under a page needs at most
_LEAST = 200


def page_of(lines: Sequence[str], page: int, tokens: int, narrower: str) -> str:
    """Return one page of an answer, with a line that tells the extent of the whole and how to see more of it.

    ``tokens`` limits the page; lines that are longer than a page are cut. ``narrower`` tells how to ask for less.
    Raises ``UsageError`` for a page that there is not, and for fewer than 200 tokens.

    >>> print(page_of([f"line {i}" for i in range(300)], 3, 200, "give a path"))  # doctest: +ELLIPSIS
    line 65
    ...
    (lines 66 to 97 of 300; page=4 has the next ones; all are on 11 pages, fewer with a larger tokens=; or give a path)
    """
    if tokens < _LEAST:
        raise UsageError(f"tokens={tokens}: at least {_LEAST}")
    room = int(tokens * CHARACTERS) - _FOOTER
    starts, used = [0], 0
    texts = [_shortened(line, room) for line in lines]
    for number, text in enumerate(texts):
        used += len(text) + 1
        if used > room and number > starts[-1]:
            starts.append(number)
            used = len(text) + 1
    if not 1 <= page <= len(starts):
        raise UsageError(f"page={page}: there are pages 1 to {len(starts)}")
    first, end = starts[page - 1], [*starts[1:], len(texts)][page - 1]
    shown = "\n".join(texts[first:end])
    if len(starts) == 1:
        return shown
    following = f"; page={page + 1} has the next ones" if page < len(starts) else ""
    whole = f"all are on {len(starts)} pages, fewer with a larger tokens=; or {narrower}"
    return f"{shown}\n(lines {first + 1} to {end} of {len(texts)}{following}; {whole})"


def error_of(text: str, tokens: int) -> str:
    """Return the text of an error within ``tokens``: what is beyond them is left out."""
    lines = text.split("\n")
    whole = page_of(lines, 1, max(tokens, _LEAST), "ask for less")
    return whole if len(lines) == 1 else whole.replace("; page=2 has the next ones", "")


def _shortened(line: str, room: int) -> str:
    text = printable_lines(line)
    return text if len(text) < room else f"{text[: room - 1]}…"
