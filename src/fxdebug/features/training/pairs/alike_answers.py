"""Whether a training's model tells examples apart, or the places of one, and from which module on it does not."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from fxdebug.features.training.recorder.leaf_calls import FEWEST_ROWS, MOST_TOLD, LeafCalls, spread

ALIKE = 1e-2  # of how far they were from one another at first, and of the largest magnitude
TURNED = 0.1  # of their size, by which answers differ from their mean: a cosine of 0.99
LOST, LARGE_APART = 3e-3, 0.1  # of the largest magnitude: what is next to nothing, and what differs
SURE_LOOKS = 3  # at which they were, one after the other


class AlikeAnswers:
    """Answers that are the same for different examples, look by look."""

    def __init__(self) -> None:
        self._first_spread: float | None = None  # of the answers to one batch
        self._alike: list[int] = []  # the last looks, one after the other, at which all rows of the answer were alike
        self._one_way: list[int] = []  # the same of rows that all point one way
        self._compared = 0  # looks at which examples were compared
        self._lost: Counter[tuple[str, str]] = Counter()  # modules behind which all examples are alike
        self._places: str | None = None  # a module, empty where it did not show at a look

    @property
    def since(self) -> int | None:
        """The step since which answers to different examples are the same."""
        return self._alike[0] if len(self._alike) >= SURE_LOOKS else None

    @property
    def one_way(self) -> int | None:
        """The step since which they all point one way."""
        return self._one_way[0] if len(self._one_way) >= SURE_LOOKS else None

    @property
    def lost(self) -> tuple[str, str] | None:
        """A module, and whether it returns or is given the same for all examples, at every look."""
        fewest = max(self._compared, SURE_LOOKS)
        return next(((path, way) for (path, way), looks in self._lost.items() if looks >= fewest), None)

    @property
    def places(self) -> str | None:
        """The module from which on all places of an example are alike."""
        return self._places or None

    def look(self, number: int, given: Tensor, answer: Tensor, seen: LeafCalls | None) -> None:
        """Note whether the answer is the same for all examples, though they differ."""
        count = len(answer) if answer.dim() > 1 and answer.is_floating_point() else 0
        if count < FEWEST_ROWS or not given.dim() or len(given) != count or not spread(given)[0]:
            return
        distance, largest = spread(answer)
        if self._first_spread is None:
            self._first_spread = distance
        if distance > ALIKE * min(self._first_spread, largest):
            self._alike.clear()
        else:
            self._alike.append(number)
        if _turned(answer) > TURNED:
            self._one_way.clear()
        else:
            self._one_way.append(number)
        self._note_lost(seen, count, is_lost=distance <= LOST * largest)
        self._note_places(seen)

    def _note_lost(self, seen: LeafCalls | None, count: int, *, is_lost: bool) -> None:
        """Note modules that return the same for all examples, though what they are given differs; and from where on."""
        calls = [one for one in seen.calls if one.rows == count] if seen is not None else []
        self._compared += 1
        for one in calls:
            if one.made_apart is not None and one.made_apart <= LOST and (one.given_apart or 0.0) > LARGE_APART:
                self._lost[one.path, "returns"] += 1
        apart = [one.made_apart or 0.0 for one in calls]
        begin = next((i for i in range(len(calls)) if max(apart[i:]) <= LOST), None)
        if is_lost and begin is not None and (calls[begin].given_apart or 0.0) <= LARGE_APART:
            self._lost[calls[begin].path, "is given"] += 1

    def _note_places(self, seen: LeafCalls | None) -> None:
        """Note from which module on all places of an example are alike, though they differ in front of it."""
        calls = [one for one in (seen.calls if seen is not None else ()) if one.places_made is not None]
        begin = next((i for i in range(len(calls)) if max(one.places_made or 0.0 for one in calls[i:]) <= LOST), None)
        first = calls[0].places_given if calls else None
        if begin is None or first is None or first <= LARGE_APART:
            self._places = ""
        elif self._places is None:
            self._places = calls[begin].path


def _turned(answer: Tensor) -> float:
    """Return by how much the first rows of a tensor differ from their mean, relative to their size."""
    rows = _wide(answer.detach()[: 8 * FEWEST_ROWS].reshape(min(len(answer), 8 * FEWEST_ROWS), -1)[:, :MOST_TOLD])
    size = float(rows.norm())
    return float((rows - rows.mean(0)).norm()) / size if size else 0.0


def _wide(numbers: Tensor) -> Tensor:
    return numbers if numbers.dtype is torch.float64 else numbers.float()
