"""The screen of the console: lines with styles, in the columns of the terminal, plain where output is piped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rich.text import Text

from fxdebug.cells import shortened_to, wrapped
from fxdebug.exports.screen import Screen as TextScreen
from fxdebug.printable import printable, printable_lines

Part: TypeAlias = "str | tuple[str, str]"  # text, or text and a style of rich

LEAST_WIDTH = 40  # columns


class Screen:
    """Writes lines: ``width`` columns at most, with colours if ``color``."""

    def __init__(self, write: Callable[[str], object], *, width: int = 80, color: bool = False) -> None:
        self.width, self.color = max(width, LEAST_WIDTH), color
        self._write = write

    def line(self, *parts: Part) -> None:
        """Write one line, cut to the width; names in it may hold any character."""
        if not self.color:
            self._write(shortened_to(printable("".join(map(_text_of, parts))).rstrip(), self.width) + "\n")
            return
        self._styled(Text.assemble(*[(printable(_text_of(part)), _style_of(part)) for part in parts]))

    def _styled(self, text: Text) -> None:
        text.rstrip()
        if text.cell_len > self.width:
            text.truncate(self.width, overflow="ellipsis")
        line = TextScreen(100_000, self.color)  # it is cut here by its columns, never wrapped by rich
        line.print(text)
        self._write(line.written().rstrip() + "\n")

    def lines(self, text: str) -> None:
        """Write text that was laid out already, with the styles it has; longer lines are cut."""
        for line in text.split("\n"):
            if self.color:
                self._styled(Text.from_ansi(line))
            else:
                self._write(shortened_to(printable_lines(line.rstrip()), self.width) + "\n")

    def error(self, text: str) -> None:
        """Write what went wrong, in as many lines as it takes."""
        from_here = [line for line in text.splitlines() if line] or ["something went wrong"]
        for place, line in enumerate(from_here):
            self.wrapped(line, first="*** " if not place else "    ", style="red")

    def wrapped(self, text: str, *, first: str = "", style: str = "") -> None:
        """Write text in lines of the width; ``first`` is before the first line, blanks are before the others."""
        for line in wrapped(printable(text), self.width, first=first, further=" " * len(first)):
            self.line((line, style))


def _style_of(part: Part) -> str:
    return "" if isinstance(part, str) else part[1]


def _text_of(part: Part) -> str:
    return part if isinstance(part, str) else part[0]
