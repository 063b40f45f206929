"""The data of a saved run, read from its folder when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.store.tensors.read import read_tensor
from fxdebug.store.transformers.printed_statistics import PrintedStats


class SavedData:
    """Answers for the data of a saved trace. ``words``: printed statistics still known from the run itself."""

    lasting = True  # it holds nothing live, so a trace that is pickled takes it along

    def __init__(self, folder: Path, words: Mapping[int, PrintedStats] | None = None) -> None:
        self._folder = folder
        self._words = words or {}

    def lines(self, value: Value) -> list[str] | None:
        """The printed form: it is in the standard tree on disk, and is not read back."""
        return None

    def printed(self, value: Value) -> PrintedStats | None:
        """Mean, std, min and max in the reference's letters, while the process that ran it lives."""
        return self._words.get(value.number)

    def tensor(self, value: Value) -> Tensor:
        """The data of a value."""

        return read_tensor(self._folder, value)
