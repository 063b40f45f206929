"""Calls of ``clip_grad_norm_``: before the step that they are for, or where there is nothing to be clipped?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from torch import Tensor

from fxdebug.features.shared.records.learning import Sign

FEWEST = 5  # calls
NEARLY_ALL = 0.9
MOST_LOOKED_AT = 16  # parameters of a call

Moment: TypeAlias = Literal["in time", "early", "late", "others"]


class Clipping:
    """The calls of one training, by their moments."""

    def __init__(self) -> None:
        self._calls: Counter[Moment] = Counter()
        self._bound = math.inf
        self._over = 0  # late calls that would have made gradients smaller
        self._at: list[int] = []  # after how many backwards of this step calls came
        self._parts = self._steps = self._cut = 0

    def note(self, parameters: Any, bound: float, norm: float | None, own: frozenset[int], backwards: int) -> None:
        """Note a call for ``parameters``, after so many ``backwards`` since the last step; ``own`` are the model's."""
        given = [parameters] if type(parameters) is Tensor else parameters
        if type(given) not in (list, tuple) or not given:
            return
        some = [one for one in given[:MOST_LOOKED_AT] if isinstance(one, Tensor)]
        is_empty = not _have_gradients(some)
        if not any(id(one) in own for one in some):
            if is_empty:
                self._add("others", bound)
            return
        if backwards:
            self._add("in time", bound)
            self._at += [] if backwards in self._at else [backwards]
            self._cut += int(norm is not None and norm > bound)
        elif is_empty:
            self._add("early", bound)
        else:
            self._add("late", bound)
            self._over += int(norm is not None and norm > bound)

    def end_step(self) -> None:
        """Note whether a step was clipped after each of its backwards."""
        at, self._at = self._at, []
        self._steps += bool(at)
        self._parts += len(at) > 1

    def _add(self, moment: Moment, bound: float) -> None:
        self._calls[moment] += 1
        self._bound = min(self._bound, bound)

    def signs(self) -> Sequence[Sign]:
        """Return whether nearly all calls came when they had no effect."""
        count = self._calls.total()
        if self._parts >= max(FEWEST, NEARLY_ALL * self._steps) and self._cut > count / 2:
            return [Sign("clipped in parts", (), (float(count) / self._steps, self._bound, float(self._cut)))]
        moment, most = self._calls.most_common(1)[0] if count else ("in time", 0)
        if moment == "in time" or most < max(FEWEST, NEARLY_ALL * count) or not math.isfinite(self._bound):
            return []
        return [Sign(f"clipped {moment}", (), (float(most), self._bound, float(self._over)))]


def _have_gradients(parameters: Sequence[Tensor]) -> bool:
    """Has one of these parameters a gradient that is not 0?"""
    return any(one.grad is not None and bool(one.grad.detach().any()) for one in parameters)
