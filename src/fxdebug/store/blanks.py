"""Empty files, made by a thread before they are needed.

To create a file takes the system 0.02 to 0.7 ms, by what its disk is at; to write a tensor of a megabyte into one
that is open takes less. The standard tree with ``use_repr=False`` is a file a tensor: made while the model computes,
they cost it nothing.
"""

from __future__ import annotations

import io
from collections import deque
from pathlib import Path

from fxdebug.store.writer import Writer

AHEAD = 8  # files that are made in a row; what nobody needed is removed with its folder


class Blanks:
    """The empty files of one folder, made by the thread of ``writer``. One thread at a time may take them."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        self._folder = folder
        self._writer = writer
        self._ready: deque[io.FileIO] = deque()
        self._made = 0
        self._is_making = False
        self._order()

    def take(self) -> io.FileIO | None:
        """An empty file, open for writing; ``None`` where none is there yet."""
        file = self._ready.popleft() if self._ready else None
        if len(self._ready) < AHEAD // 2 and not self._is_making:
            self._order()
        return file

    def close(self) -> None:
        """No more are needed. Call it when the writer is at its end."""
        while self._ready:
            self._ready.popleft().close()

    def _order(self) -> None:
        self._is_making = True
        self._writer.put(0, self._make)

    def _make(self) -> None:
        try:
            for _ in range(AHEAD):
                self._ready.append(io.FileIO(f"{self._folder}/blank-{self._made}.safetensors", "x"))
                self._made += 1
        except OSError:  # a full disk: that is told by who needs a file and cannot have it
            return
        self._is_making = False
