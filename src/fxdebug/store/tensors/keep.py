"""What one run keeps besides numbers while it runs: printed text and tensors."""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import IO, Protocol

from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.store.run_folder import StagingFolder
from fxdebug.store.tensors import read
from fxdebug.store.tensors.saved_values import Words
from fxdebug.store.transformers.print_tensor import Printer

SPOOLED = 1 << 20  # bytes of text that are kept in memory


class _Bodies(Protocol):
    def keep(self, value: Value, body: Tensor) -> None: ...


class RunData:
    """Takes each new value of a run while it is at hand, and answers for its data afterwards.

    ``text``: its printed form (for ``use_repr=True``); ``bodies``: where its data goes; ``words``: its
    four statistics as the reference prints them. All of it lies in ``place`` until it is published.
    """

    def __init__(
        self,
        place: StagingFolder,
        *,
        text: bool = False,
        words: bool = True,
        bodies: _Bodies | None = None,
    ) -> None:
        self.place = place
        self.bodies = bodies
        self.printer = Printer(120 if text else None)
        self._with_words = words
        self.words: dict[int, Words] = {}
        self._with_text = text
        self._texts: dict[int, bytes] = {}  # those that are not on disk, by the number of their value
        self._waiting = 0  # bytes of them
        self._spans: dict[int, tuple[int, int]] = {}  # where the others lie
        self._spool: IO[bytes] | None = None
        self._end = 0
        self._broken: OSError | None = None

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if body is None and is_freed(local):
            return
        if self._with_words:
            with contextlib.suppress(Exception):  # sparse, nested: the tree then has our own numbers
                words = self.printer.statistics(local, value.stats)
                if words is not None:
                    self.words[value.number] = words
        if self._with_text:
            self._print(value, local)
        if self.bodies is not None and body is not None:
            self.bodies.keep(value, body)

    def _print(self, value: Value, tensor: Tensor) -> None:
        lines = self.printer.lines(tensor)
        data = self._texts[value.number] = "\n".join(lines).encode("utf-8", "surrogatepass")
        self._waiting += len(data)
        if self._waiting >= SPOOLED:
            self._spill()

    def _spill(self) -> None:
        """Printed text goes to a file: there is as much of it as there are values."""
        texts, self._texts, self._waiting = self._texts, {}, 0
        try:
            if self._spool is None:
                self._spool = (self.place.path / "text.spool").open("w+b")
                weakref.finalize(self, _closed, self._spool)
            self._spool.write(b"".join(texts.values()))
        except OSError as error:  # a full disk: told when the text is asked for, not to the model
            self._broken = self._broken or error
        for number, text in texts.items():
            self._spans[number] = (self._end, len(text))
            self._end += len(text)

    def lines(self, value: Value) -> list[str] | None:
        """The printed form of a value, read back if it is on disk; ``None`` if it was not printed."""
        if self._broken is not None:
            raise self._broken
        data = self._texts.get(value.number)
        span = self._spans.get(value.number)
        if data is None and span is not None and self._spool is not None:
            self._spool.seek(span[0])
            data = self._spool.read(span[1])
            self._spool.seek(0, os.SEEK_END)
        return None if data is None else data.decode("utf-8", "surrogatepass").split("\n")

    def printed(self, value: Value) -> Words | None:
        """Mean, std, min and max in the reference's arithmetic and letters."""
        return self.words.get(value.number)

    def tensor(self, value: Value) -> Tensor:
        """The data of a value."""
        return read.read_tensor(self.place.path, value)


def _closed(spool: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # what is still to be written fails on a full disk, which was told before
        spool.close()
