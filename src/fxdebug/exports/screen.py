"""A screen in memory that rich prints on, and whether to print in colour: all text is escaped here."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fxdebug.printable import printable_lines


def wants_color() -> bool:
    """Return whether to print in colour: on a terminal, unless ``NO_COLOR`` is set; elsewhere with ``FORCE_COLOR``."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    if forced is not None:
        return forced not in ("", "0")
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Screen(Console):
    """Prints in ``width`` columns, with our colours if ``color``; nothing else that is printed reaches a terminal raw.

    Text is escaped where it is laid out, so that a name with an escape sequence is cut to its column like any other;
    neither brackets (``[bold]``) nor ``:names:`` in a text mean anything.

    >>> screen = Screen(20)
    >>> screen.print("[bold]a\\x1b[31m")
    >>> screen.text()
    '[bold]a\\\\x1b[31m'
    """

    def __init__(self, width: int, color: bool = False, *, record: bool = False) -> None:
        super().__init__(
            file=io.StringIO(),
            width=width,
            color_system="standard" if color else None,
            force_terminal=color,
            force_jupyter=False,  # a kernel would show each line on its own
            highlight=False,
            markup=False,
            emoji=False,
            record=record,
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the pieces of text that something is shown as, each made safe."""
        for piece in super().render(renderable, options):
            if piece.control or piece.text.isprintable():
                yield piece
            else:
                yield Segment(printable_lines(piece.text), piece.style)

    def text(self) -> str:
        """Return what was printed, without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.written().splitlines())

    def written(self) -> str:
        """Return everything that was printed."""
        file = self.file
        return file.getvalue() if isinstance(file, io.StringIO) else ""
