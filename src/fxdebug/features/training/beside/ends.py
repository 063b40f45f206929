"""Do targets of the form reward + discount × value ever end, so that the value is left out?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import dropwhile

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
FEWEST_ENDLESS = 300  # rows that all have the same reward, of which one would be an end


class Ends:
    """Rests of targets without the values of what follows, look by look: rewards, where nothing ends."""

    def __init__(self) -> None:
        self._looks: list[Tensor] = []  # for each answer of a row: the target less its discounted value
        self._discounts: list[float] = []
        self._lines: list[tuple[float, float, int] | None] = []  # of each look: one reward for all rows, and a discount

    def note(self, told: Tensor, answers: Sequence[Tensor]) -> None:
        """Note targets, and answers that may be to what follows: one for each action."""
        if max(len(self._lines), len(self._looks)) >= MOST_LOOKS or len(told) < FEWEST_ROWS:
            return
        lines = list[tuple[float, float, int] | None]()
        with untracked():
            told = told[:MOST_ROWS].double().cpu()
            for answer in answers:
                if answer.dim() != 2 or not 1 <= answer.shape[1] <= MOST_ROWS or len(answer) < len(told):
                    continue
                answer = answer.detach()[: len(told)].double().cpu()
                values = answer.amax(1)
                discount = _discount(told, values)
                if discount is not None:
                    self._discounts.append(discount)
                    self._looks.append(told[:, None] - discount * answer)
                if bool(values.std() > CLOSE * values.abs().max()):  # else each line fits
                    lines.append(_line(told, values))
        if lines:
            self._lines.append(next((one for one in lines if one is not None), None))

    def signs(self) -> Iterator[Sign]:
        """Yield that every row is a reward and the value of what follows: one of several, or the same for all."""
        known = list(dropwhile(lambda one: one is None, self._lines))  # before it, the copy was not found yet
        lines = [one for one in known if one is not None]
        rows = sum(count for _, _, count in lines)
        if len(lines) == len(known) >= FEWEST_LOOKS and rows >= FEWEST_ENDLESS:
            discounts, rewards = ([one[place] for one in lines] for place in (0, 1))
            if max(discounts) - min(discounts) < 10 * CLOSE and max(rewards) - min(rewards) < 10 * CLOSE:
                yield Sign("no end", (), (discounts[0], float(rows), 1.0, 1.0))
            return
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


def _line(told: Tensor, values: Tensor) -> tuple[float, float, int] | None:
    """Return the discount, the reward and the rows, where each target is one reward and its discounted value.

    >>> values = torch.arange(1, 17).double()
    >>> discount, reward, rows = _line(0.9 * values + 1, values)
    >>> round(discount, 3), round(reward, 3), rows
    (0.9, 1.0, 16)
    """
    apart = values - values.mean()
    discount = float((apart * told).sum() / apart.square().sum())
    reward = float(told.mean()) - discount * float(values.mean())
    rest = float((told - discount * values - reward).abs().max())
    fits = rest < CLOSE * max(1.0, float(told.abs().max())) and DISCOUNTS[0] < discount < DISCOUNTS[1]
    return (discount, reward, len(told)) if fits and abs(reward) > CLOSE else None


def ratios_between(told: Tensor, values: Tensor) -> Tensor | None:
    """Return the ratios of targets and values that may be a discount; ``None`` where few are."""
    ratios = told[values != 0] / values[values != 0]
    ratios = ratios[(ratios > DISCOUNTS[0]) & (ratios < DISCOUNTS[1])]
    return ratios if len(ratios) >= SHARE * len(told) else None
