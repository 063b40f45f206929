"""The data of a run in the process that ran it: printed text, printed statistics, tensors."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import IO, Protocol

from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.store.staging_folder import StagingFolder
from fxdebug.store.tensors.read import read_tensor
from fxdebug.store.transformers.print_tensor import Printer
from fxdebug.store.transformers.printed_statistics import PrintedStats

TEXT_IN_MEMORY_BYTES = 1 << 20  # more printed text than this goes to disk


class TensorWriter(Protocol):
    """Write the data of values to disk, as ``ShardWriter`` and ``OneFileEach`` do."""

    def add(self, value: Value, tensor: Tensor) -> None: ...


class LiveData:
    """Take the data of each new value of a run, and return it afterwards when asked.

    ``text``: keep the printed form (for ``use_repr=True``). ``printed_stats``: keep the four statistics as
    transformers' debugger prints them. ``tensors``: writes the data. All of it lies in the ``staging`` folder until
    the run is published.
    """

    def __init__(
        self,
        staging: StagingFolder,
        *,
        text: bool = False,
        printed_stats: bool = True,
        tensors: TensorWriter | None = None,
    ) -> None:
        self.staging = staging
        self.printer = Printer(120 if text else None)
        self.printed_stats: dict[int, PrintedStats] = {}  # by the number of the value
        self._tensors = tensors
        self.attention = tensors is not None  # also what attentions are given and return
        self._with_printed_stats = printed_stats
        self._text = PrintedText(staging.path / "text.spool") if text else None

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if body is None and is_freed(local):
            return
        if self._with_printed_stats:
            with contextlib.suppress(Exception):  # sparse, nested: the tree then has our own numbers
                printed = self.printer.statistics(local, value.stats)
                if printed is not None:
                    self.printed_stats[value.number] = printed
        if self._text is not None:
            self._text.add(value.number, self.printer.lines(local))
        if self._tensors is not None and body is not None:
            self._tensors.add(value, body)

    def lines(self, value: Value) -> list[str] | None:
        """Return the printed form of a value, line by line; ``None`` if it was not printed."""
        return None if self._text is None else self._text.lines(value.number)

    def printed(self, value: Value) -> PrintedStats | None:
        """Return mean, std, min and max as transformers' debugger prints them."""
        return self.printed_stats.get(value.number)

    def tensor(self, value: Value) -> Tensor:
        """Return the data of a value."""
        return read_tensor(self.staging.path, value)


class PrintedText:
    """The printed text of values by number: in memory at first, in a file once there is too much of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._in_memory: dict[int, bytes] = {}
        self._in_memory_bytes = 0
        self._spans: dict[int, tuple[int, int]] = {}  # value number → offset and length in the file
        self._file: IO[bytes] | None = None
        self._end = 0
        self._error: OSError | None = None

    def add(self, number: int, lines: list[str]) -> None:
        """Keep the lines of a value."""
        text = self._in_memory[number] = "\n".join(lines).encode("utf-8", "surrogatepass")
        self._in_memory_bytes += len(text)
        if self._in_memory_bytes >= TEXT_IN_MEMORY_BYTES:
            self._write()

    def _write(self) -> None:
        texts, self._in_memory, self._in_memory_bytes = self._in_memory, {}, 0
        try:
            if self._file is None:
                self._file = self._path.open("w+b")
                weakref.finalize(self, _close, self._file)
            self._file.write(b"".join(texts.values()))
        except OSError as error:  # a full disk: raised when the text is asked for, not into the model
            self._error = self._error or error
        for number, text in texts.items():
            self._spans[number] = (self._end, len(text))
            self._end += len(text)

    def lines(self, number: int) -> list[str] | None:
        """Return the lines of a value; ``None`` if it was not printed. Raises the first ``OSError`` of the disk."""
        if self._error is not None:
            raise self._error
        text = self._in_memory.get(number)
        span = self._spans.get(number)
        if text is None and span is not None and self._file is not None:
            self._file.seek(span[0])
            text = self._file.read(span[1])
            self._file.seek(0, os.SEEK_END)
        return None if text is None else text.decode("utf-8", "surrogatepass").split("\n")


def _close(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # the rest cannot be written on a full disk, which was reported before
        file.close()
