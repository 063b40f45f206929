"""The data of a trace's values on disk, read when somebody asks; no torch until then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fxdebug.data.values import Value

if TYPE_CHECKING:
    from torch import Tensor

Words = tuple[str, str, str, str]


class Saved:
    """Answers for the data of a saved trace. ``words``: printed statistics still known from the run itself."""

    lasting = True  # it holds nothing live, so a trace that is pickled takes it along

    def __init__(self, folder: Path, words: Mapping[int, Words] | None = None) -> None:
        self._folder = folder
        self._words = words or {}

    def lines(self, value: Value) -> list[str] | None:
        """The printed form: it is in the standard tree on disk, and is not read back."""
        return None

    def printed(self, value: Value) -> Words | None:
        """Mean, std, min and max in the reference's letters, while the process that ran it lives."""
        return self._words.get(value.number)

    def tensor(self, value: Value) -> Tensor:
        """The data of a value."""
        from fxdebug.store.tensors.read import read_tensor

        return read_tensor(self._folder, value)
