"""The data of a run that was read from a debug tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxdebug.data.values import Value
from fxdebug.errors import LoadError
from fxdebug.store.transformers.parse_statistics import SCALAR_TEXT, printed_digits
from fxdebug.store.transformers.printed_statistics import PrintedStats, torch_statistics

# Data --------------------------------------------------------------------------------------------


class TreeData:
    """Answers for the data of a trace that was read from a standard tree."""

    lasting = True  # nothing live, so a trace that is pickled takes it along

    def __init__(self, folder: Path, words: Mapping[int, PrintedStats], lines: Mapping[int, list[str]]) -> None:
        self._folder = folder
        self._words = words
        self._lines = lines

    def lines(self, value: Value) -> list[str] | None:
        """The printed form, where the file has it."""
        return self._lines.get(value.number)

    def printed(self, value: Value) -> PrintedStats | None:
        """Mean, std, min and max as they stand in the file."""
        return self._words.get(value.number)

    def tensor(self, value: Value) -> Any:
        """The data of a value, held against its printed extremes.

        Raises :class:`LoadError` where the file holds other data: of a call that came later and has the same file
        name, or (of a lazily negated tensor) with the wrong sign.
        """
        from fxdebug.stats.measure import Unmeasurable, measure
        from fxdebug.store.tensors import read

        try:
            tensor = read.read_tensor(self._folder, value)
            _, _, low, high = torch_statistics(measure(tensor))
        except (RuntimeError, TypeError, KeyError, AttributeError, Unmeasurable) as error:
            what = f"{value.saved} cannot be read as value {value.number} ({value.label})"
            raise LoadError(f"{what}: {error}") from error
        words = self._words.get(value.number)
        if words is not None and not (_agrees(low, words[2]) and _agrees(high, words[3])):
            raise LoadError(
                f"{value.saved} holds other data than value {value.number} had ({value.label}): "
                "it was overwritten by a later call, or written with the wrong sign"
            )
        return tensor


def _agrees(number: float, word: str) -> bool:
    """Is it the number that was printed, as far as that tells?"""
    printed = SCALAR_TEXT.search(word)
    if printed is None:
        return True
    other = float(printed[1])
    if not (math.isfinite(number) and math.isfinite(other)):
        return repr(number) == repr(other)
    return abs(number - other) <= 10.0 ** -printed_digits(word) * abs(other)
