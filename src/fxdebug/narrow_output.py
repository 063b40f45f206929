"""Output to a terminal or a pipe whose encoding lacks our characters, as cp1252 on Windows lacks │ and −.

In text, a line, a cross or an arrow is written by a sign of ASCII that looks like it. In JSON, every such character is
an escape, which reads back as the character itself.
"""

from __future__ import annotations

import codecs
import io
import json
import sys
from typing import IO, Any

_LIKE = {
    **dict.fromkeys("│┃╷╵", "|"), **dict.fromkeys("─━", "-"), **dict.fromkeys("├└┌┐┘┤┬┴┼", "+"), "×": "x", "·": "-",
    "…": "...", "−": "-", "–": "-", "—": "-", "→": "->", "←": "<-", "↓": "v", "↑": "^", "≥": ">=", "≤": "<=", "≠": "!=",
    "≈": "~", "∞": "inf", "√": "sqrt", "µ": "u", "∠": "<", "±": "+-", "“": '"', "”": '"', "‘": "'", "’": "'",
    "▏": "|", **dict.fromkeys("█▉▊▋▌▍▎▁▂▃▄▅▆▇", "#"),
}  # fmt: skip


def write_what_it_can(stream: IO[Any] | None, *, as_json: bool) -> None:
    """Let a stream write other signs for the characters that its encoding lacks."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_IN_JSON if as_json else _IN_TEXT)


def as_printed(text: str) -> str:
    """Return a text with other signs for the characters that the program's output lacks.

    ``print`` gives a text to the program's own stream, which raises in the program where it cannot write a character.

    >>> as_printed("├ ReLU") in ("├ ReLU", "+ ReLU")
    True
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        return text.encode(encoding, _IN_TEXT).decode(encoding)
    except LookupError:  # an encoding of the program's own stream that Python does not know
        return text


def _lacking(error: UnicodeError) -> str:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.object[error.start : error.end]


def _as_signs(error: UnicodeError) -> tuple[str, int]:
    signs = [_LIKE.get(each) or each.encode("ascii", "backslashreplace").decode() for each in _lacking(error)]
    return "".join(signs), error.end  # type: ignore[attr-defined]


def _as_json(error: UnicodeError) -> tuple[str, int]:
    return json.dumps(_lacking(error))[1:-1], error.end  # type: ignore[attr-defined]


_IN_TEXT, _IN_JSON = "fxdebug.text", "fxdebug.json"
codecs.register_error(_IN_TEXT, _as_signs)
codecs.register_error(_IN_JSON, _as_json)
