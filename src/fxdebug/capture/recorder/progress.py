"""One line on the terminal while a long run is on: how many calls, and where it is."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

from fxdebug.capture.recorder.frame import Frame

PATIENCE = 1.0  # seconds before anything is shown: short runs stay silent
INTERVAL = 0.1  # seconds between two updates


class ProgressLine:
    """Rewrites one line of ``stream``; any error of the stream ends it."""

    def __init__(self, model: str, stream: TextIO, patience: float = PATIENCE) -> None:
        self._model = model
        self._stream = stream
        self._calls = 0
        self._next = time.monotonic() + patience
        self._shown = False

    def enter_call(self, frame: Frame) -> None:
        """Count one more call, and rewrite the line if the last update is long enough ago."""
        self._calls += 1
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL
            width = shutil.get_terminal_size().columns
            self._write(f"\r{self.text(frame.site.path)[: width - 1]}\x1b[K")
            self._shown = True

    def leave_call(self, frame: Frame) -> None:
        """Do nothing: the line does not change when a call ends."""

    def text(self, path: str) -> str:
        """Return the text of the line.

        >>> ProgressLine("GPT2", sys.stderr).text("h.3.attn")
        'tracing GPT2 · 0 calls · h.3.attn'
        """
        # without line breaks, whatever the names are
        printable = "".join([letter if letter.isprintable() else "?" for letter in path or self._model])
        return f"tracing {self._model} · {self._calls} calls · {printable}"

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._next = float("inf")


def line(wanted: bool | None, model: str) -> tuple[ProgressLine, ...]:
    """Return the progress line of a run, if it is wanted.

    ``None`` means: where standard error is a terminal, and not in continuous integration.
    """
    stream = sys.stderr
    if wanted is None:
        quiet = os.environ.get("CI") or os.environ.get("TERM") == "dumb"  # such a terminal cannot clear a line
        wanted = stream is not None and stream.isatty() and not quiet
        patience = PATIENCE
    else:
        patience = 0.0
    return (ProgressLine(model, stream, patience),) if wanted and stream is not None else ()
