"""Text made safe for terminals and files: names in a run may hold any character.

Escape sequences can move the cursor, set the title of a window and hide text; marks of direction reverse the order in
which letters are shown.
"""

from __future__ import annotations


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
