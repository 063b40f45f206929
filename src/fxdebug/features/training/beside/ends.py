"""Do targets of the form reward + discount × value ever end, so that the value is left out?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import Sign

MOST_ROWS, MOST_LOOKS = 64, 40
FEWEST_ROWS, FEWEST_LOOKS = 8, 6
CLOSE = 1e-4
DISCOUNTS = (0.3, 0.9999)
SHARE = 0.3  # of the rows, that have no reward
OFTEN, USUAL = 0.85, 0.015  # of the looks that show a reward, and of the rows of one look
NEARLY_ALL = 0.995


class Ends:
    """Rests of targets without the values of what follows, look by look: rewards, where nothing ends."""

    def __init__(self) -> None:
        self._looks: list[Tensor] = []  # for each answer of a row: the target less its discounted value
        self._discounts: list[float] = []

    def note(self, told: Tensor, answers: Tensor) -> None:
        """Note targets, and the answers to what follows: one for each action."""
        if len(self._looks) >= MOST_LOOKS or answers.dim() != 2 or not 1 <= answers.shape[1] <= MOST_ROWS:
            return
        if len(told) != len(answers) or len(told) < FEWEST_ROWS:
            return
        with untracked():
            told, answers = told[:MOST_ROWS].double().cpu(), answers.detach()[:MOST_ROWS].double().cpu()
            discount = _discount(told, answers.amax(1))
            if discount is not None:
                self._discounts.append(discount)
                self._looks.append(told[:, None] - discount * answers)

    def signs(self) -> Iterator[Sign]:
        """Yield that every row is a reward and the value of what follows, where rewards differ."""
        if len(self._looks) < FEWEST_LOOKS or max(self._discounts) - min(self._discounts) > CLOSE:
            return
        seen: Counter[float] = Counter()
        for look in self._looks:
            counts = Counter([round(number, 3) + 0.0 for number in look.amin(1).tolist()])
            seen.update([number for number, count in counts.items() if count >= max(1, USUAL * len(look))])
        rewards = [number for number, looks in seen.items() if looks >= OFTEN * len(self._looks)]
        if len(rewards) < 2 or 0.0 not in rewards:
            return
        rows = torch.cat([self._known(look, rewards) for look in self._looks])
        if float(rows.double().mean()) > NEARLY_ALL:
            rewarded = torch.cat([self._known(look, [one for one in rewards if one]) for look in self._looks])
            share = float(rewarded.double().mean())
            yield Sign("no end", (), (self._discounts[0], float(len(rows)), float(len(rewards)), share))

    @staticmethod
    def _known(look: Tensor, rewards: list[float]) -> Tensor:
        """Return which rows are one of the rewards, for one of the answers."""
        apart = (look[:, :, None] - torch.tensor(rewards, dtype=torch.float64)).abs()
        return (apart < 1e-3).flatten(1).any(1)


def _discount(told: Tensor, values: Tensor) -> float | None:
    """Return the factor between many targets and values: those without a reward.

    >>> values = torch.arange(1, 17).double()
    >>> round(_discount(0.9 * values + torch.tensor([0.0, 1.0] * 8), values), 3)
    0.9
    """
    ratios = ratios_between(told, values)
    if ratios is None:
        return None
    counts = Counter([round(ratio, 3) for ratio in ratios.tolist()])
    most, count = counts.most_common(1)[0]
    alike = ratios[(ratios - most).abs() < 10 * CLOSE]
    return float(alike.median()) if count > SHARE * len(told) else None


def ratios_between(told: Tensor, values: Tensor) -> Tensor | None:
    """Return the ratios of targets and values that may be a discount; ``None`` where few are."""
    ratios = told[values != 0] / values[values != 0]
    ratios = ratios[(ratios > DISCOUNTS[0]) & (ratios < DISCOUNTS[1])]
    return ratios if len(ratios) >= SHARE * len(told) else None
