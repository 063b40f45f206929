"""The data of a run that was read from a debug tree: printed lines, printed statistics, tensor files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxdebug.data.values import Value
from fxdebug.errors import LoadError
from fxdebug.features.debug_trees.parse_statistics import SCALAR_TEXT, printed_digits
from fxdebug.files.system_errors import system_errors_told
from fxdebug.store.transformers.printed_statistics import PrintedStats, torch_statistics


class TreeData:
    """The data of a trace that was read from a debug tree."""

    lasting = True  # it holds nothing live, so a pickled trace takes it along

    def __init__(self, folder: Path, printed: Mapping[int, PrintedStats], lines: Mapping[int, list[str]]) -> None:
        self._folder = folder
        self._printed = printed
        self._lines = lines

    def lines(self, value: Value) -> list[str] | None:
        """Return the printed form of a value; ``None`` if the file does not have it."""
        return self._lines.get(value.number)

    def printed(self, value: Value) -> PrintedStats | None:
        """Return mean, std, min and max as written in the file."""
        return self._printed.get(value.number)

    def tensor(self, value: Value) -> Any:
        """Return the data of a value, after comparing it with the printed minimum and maximum.

        Raises :class:`LoadError` where the file holds other data: of a later call with the same file name, or of a
        lazily negated tensor, which transformers' debugger writes with the wrong sign.
        """
        from fxdebug.stats.measure import (
            Unmeasurable,
            measure,  # loads torch
        )
        from fxdebug.store.tensors.read import read_tensor

        try:
            with system_errors_told(self._folder / str(value.saved)):
                tensor = read_tensor(self._folder, value)
                _, _, low, high = torch_statistics(measure(tensor))
        except LoadError:
            raise
        except (RuntimeError, TypeError, KeyError, AttributeError, Unmeasurable) as error:
            what = f"{value.saved} cannot be read as value {value.number} ({value.label})"
            raise LoadError(f"{what}: {error}") from error
        printed = self._printed.get(value.number)
        if printed is not None and not (_agrees(low, printed[2]) and _agrees(high, printed[3])):
            raise LoadError(
                f"{value.saved} holds other data than value {value.number} had ({value.label}): "
                "it was overwritten by a later call, or written with the wrong sign"
            )
        return tensor


def _agrees(number: float, text: str) -> bool:
    """Is the number the one in the text, to the digits that are printed? A text without a number agrees with any."""
    match = SCALAR_TEXT.search(text)
    if match is None:
        return True
    printed = float(match[1])
    if not (math.isfinite(number) and math.isfinite(printed)):
        return repr(number) == repr(printed)
    return abs(number - printed) <= 10.0 ** -printed_digits(text) * abs(printed)
