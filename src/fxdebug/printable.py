"""Text made safe for terminals and files: names in a run may hold any character.

Escape sequences can move the cursor, set the title of a window and hide text; marks of direction reverse the order in
which letters are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def printable(text: str) -> str:
    r"""Return text with control characters, marks of direction and halves of surrogate pairs as escapes.

    >>> printable("a\x1b[31m"), printable("\ud800"), printable("b\u202ec")
    ('a\\x1b[31m', '\\ud800', 'b\\u202ec')
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    r"""Return the same for text of several lines: line breaks are kept.

    >>> printable_lines("one\n\ttwo\x07")
    'one\n\\ttwo\\x07'
    """
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_cells(cells: Iterable[Any]) -> list[Any]:
    r"""Return the cells of a line of CSV, texts among them made safe.

    >>> printable_cells([1, None, "a\x1b"])
    [1, None, 'a\\x1b']
    """
    return [printable(cell) if isinstance(cell, str) else cell for cell in cells]


def printable_json(text: str) -> str:
    r"""Return JSON that means the same, with what is not printable as escapes of JSON; line breaks are kept.

    >>> printable_json('{"b\u202ec":\n1}')
    '{"b\\u202ec":\n1}'
    """
    return text if text.isprintable() else "\n".join(map(_printable_line, text.split("\n")))


def _printable_line(line: str) -> str:
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
