"""Text in the forms that DOT and SVG can hold: in HTML-like labels, in plain attributes, in tooltips."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import graphviz

from fxdebug.printable import printable


def html(text: str) -> str:
    """Return text for the inside of an HTML-like label."""
    return escape(printable(text)).replace("\\", "&#92;")


def plain(text: str, longest: int = 1000) -> str:
    """Return text for a plain attribute, where DOT would read backslashes and ampersands as escapes."""
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return str(graphviz.nohtml(printable(text).replace("&", "&amp;").replace("\\", "\\\\")))


def tooltip(lines: Sequence[str | None]) -> str:
    """Return a tooltip of several lines, without those that are empty or ``None``."""
    shown = [plain(part) for line in lines if line for part in line.split("\n")]
    return graphviz.nohtml("\\n".join(shown) or " ")  # type: ignore[no-any-return]
