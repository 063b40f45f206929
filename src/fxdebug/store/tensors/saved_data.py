"""The data of a saved run, read from its folder when asked for. Importing this loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fxdebug.data.values import Value
from fxdebug.store.transformers.printed_statistics import PrintedStats

if TYPE_CHECKING:
    from torch import Tensor


class SavedData:
    """The data of a saved trace. ``printed_stats``: printed statistics that the process of the run still has."""

    lasting = True  # it holds nothing live, so a pickled trace takes it along

    def __init__(self, folder: Path, printed_stats: Mapping[int, PrintedStats] | None = None) -> None:
        self._folder = folder
        self._printed_stats = printed_stats or {}

    def lines(self, value: Value) -> list[str] | None:
        """Return ``None``: the printed form is in the debug tree on disk and is not read back."""
        return None

    def printed(self, value: Value) -> PrintedStats | None:
        """Return mean, std, min and max as transformers' debugger prints them; ``None`` in another process."""
        return self._printed_stats.get(value.number)

    def tensor(self, value: Value) -> Tensor:
        """Return the data of a value. Raises :class:`~fxdebug.errors.LoadError`."""
        from fxdebug.store.tensors.read import read_tensor  # loads torch

        return read_tensor(self._folder, value)
