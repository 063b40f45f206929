"""Measure, pad, cut and wrap text by the columns that it takes on a terminal: letters of some scripts take two."""

from __future__ import annotations

import re
import textwrap
from typing import Literal

__all__ = ["cell_len", "padded", "shortened_to", "wrapped"]

_OF_SEVERAL = re.compile(r" …(?= |$)( \S+)?| ×\d+")  # what a name has behind it that stands for several
_SECOND_COLUMN = "\0"  # stands behind a wide letter, so that a text is as long as it is wide


def cell_len(text: str) -> int:
    """Return how many columns a text takes.

    >>> cell_len("norm"), cell_len("注意")
    (4, 4)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # late: findings are data, and looking at a run needs no rich

    return cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return text with blanks up to a width; ``right`` puts the text at the right.

    >>> padded("注意", 6), padded("norm", 6, right=True)
    ('注意  ', '  norm')
    """
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def shortened_to(text: str, room: int, keep: Literal["start", "end", "ends", "sense"] = "start") -> str:
    """Return text in at most ``room`` columns of a terminal, with … for what is cut off.

    ``keep`` is what stays: the start, the end, or both ends; ``sense`` is both ends of a name, whose end tells it from
    others, and the start of a sentence.

    >>> shortened_to("attention", 6), shortened_to("注意力", 5)
    ('atten…', '注意…')
    >>> shortened_to("model.layers.0", 8, "end"), shortened_to("model.layers.0", 10, "ends")
    ('…ayers.0', 'mod…yers.0')
    >>> shortened_to("model.layers.0", 10, "sense"), shortened_to("no gradient: the loss", 12, "sense")
    ('mod…yers.0', 'no gradient…')
    >>> shortened_to("layers.0 … layers.5 ×6", 16, "sense")
    'layer…ayers.5 ×6'
    """
    if cell_len(text) <= room:
        return text
    if keep == "sense":
        keep = "start" if " " in _OF_SEVERAL.sub("", text) else "ends"
    left = {"start": room - 1, "end": 0, "ends": (room - 1) // 3}[keep]
    start = text[: _letters_that_fit(text, left)].rstrip()
    if keep == "start":
        return f"{start}…"
    fitting = _letters_that_fit(text[::-1], room - 1 - cell_len(start))
    return f"{start}…{text[len(text) - fitting :]}"


def _letters_that_fit(text: str, room: int) -> int:
    """Return how many letters from the start of a text fit into a number of columns."""
    width = 0
    for place, letter in enumerate(text):
        width += cell_len(letter)
        if width > room:
            return place
    return len(text)


def wrapped(text: str, width: int, *, first: str = "", further: str = "") -> list[str]:
    """Return text in lines of at most ``width`` columns, with ``first`` and ``further`` in front of the lines.

    >>> wrapped("note: 注意力の重み is not finite", 16, further="  ")
    ['note:', '  注意力の重み', '  is not finite']
    """
    wide = "".join(letter + _SECOND_COLUMN * (cell_len(letter) - 1) for letter in text)
    lines = textwrap.wrap(wide, width, initial_indent=first, subsequent_indent=further)
    return [line.replace(_SECOND_COLUMN, "") for line in lines]
