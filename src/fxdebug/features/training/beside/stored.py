"""Does a batch that comes again and again come from more data than that?"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.weak import TensorWeakRef

from fxdebug.features.shared.records.learning import Sign

TIMES = 2  # as many rows as the batch
FEWEST = 5  # forwards
MOSTLY = 0.9


class Stored:
    """One batch that is given again and again: the same tensor, a part of a larger one, or made anew each time."""

    def __init__(self) -> None:
        self._digest: str | None = None
        self._differ = self._is_searched = False
        self._last: TensorWeakRef | None = None
        self._rows = self._forwards = self._anew = 0
        self._part = self._listed = 0  # rows of what it is a part of, and examples of a loader

    def note(self, given: Tensor, digest: str) -> None:
        """Note what a forward is given; nothing more once batches differ."""
        if self._differ or type(given) is not Tensor or not given.dim():
            return
        if self._digest not in (None, digest):
            self._differ, self._last = True, None
            return
        whole = given if given._base is None else given._base
        before = None if self._last is None else self._last()
        self._forwards += 1
        self._anew += self._digest is not None and (before is None or before.data_ptr() != whole.data_ptr())
        self._digest, self._rows, self._last = digest, len(given), TensorWeakRef(whole)
        if whole.dim() == given.dim() and whole.shape[1:] == given.shape[1:] and len(whole) >= TIMES * len(given):
            self._part = len(whole)
        if given.requires_grad:  # places at which an equation is to hold
            self._differ = True

    def signs(self) -> Iterator[Sign]:
        """Yield that there is more data than the batch: a loader has it, it is a part, or it is drawn each time."""
        if self._differ or self._forwards < FEWEST:
            return
        if not self._is_searched:
            self._is_searched, self._listed = True, _examples(TIMES * self._rows)
        if self._listed:
            yield Sign("more data", ("of a DataLoader",), (float(self._listed),))
        elif self._part:
            yield Sign("more data", ("of the tensor that it is a part of",), (float(self._part),))
        elif self._anew >= MOSTLY * (self._forwards - 1):
            yield Sign("more data", ("made anew for each step",), (0.0,))


def _examples(fewest: int) -> int:
    """Return the examples of the largest data set of a loader that has so many and more; else 0."""
    found = 0
    for one in gc.get_objects():
        if issubclass(type(one), DataLoader):
            with contextlib.suppress(Exception):  # of a stream the length is not known
                count = len(one.dataset)
                found = max(found, count if count >= fewest else 0)
    return found
