"""Do targets that are pictures fit their inputs only where they are turned?"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from fxdebug.capture.probe import untracked

MOST_ROWS = 32  # of a batch
FITS, APART = 0.4, 0.25  # correlations
MIXED = 0.1  # of the examples that fit as they are lie the other way round
MOST_PLACES = 1 << 14
FEWEST_PLACES = 16


class Turned:
    """Examples whose targets fit their inputs only where they are turned; :meth:`add` takes those of one loss."""

    def __init__(self) -> None:
        self.rows = 0
        self.how: Counter[str] = Counter()
        self._along = self._against = 0  # examples that are bright where their target is large, and where it is small

    def add(self, given: Tensor, target: Tensor) -> None:
        """Hold pictures against targets of the same size, as they are, and turned."""
        if target.dim() < 3 or given.dim() < 3 or len(given) != len(target) or not given.is_floating_point():
            return
        size = tuple(given.shape[-2:])
        places = size[0] * size[1]
        if tuple(target.shape[-2:]) != size or not FEWEST_PLACES <= places <= MOST_PLACES or 1 in size:
            return
        with untracked():
            rows = min(MOST_ROWS, len(target))
            x = _flat(given.detach()[:rows], size)
            y = target.detach()[:rows].float()
            y = y.reshape(rows, -1, *size).mean(1)
            ways = {"": y, "left to right": y.flip(-1), "upside down": y.flip(-2), "by half a turn": y.flip((-2, -1))}
            if size[0] == size[1]:
                ways["rows for columns"] = y.transpose(-2, -1)
            fits = {way: _correlations(x, _flat(turned, size)) for way, turned in ways.items()}
            table = torch.stack(list(fits.values()))
            best, which = table.amax(0), table.argmax(0)
            is_turned = (best > FITS) & (best - table[0] > APART)
            known = torch.isfinite(best) & (best > FITS)
            signs = _products(x, _flat(y, size)).sign()[table[0] > FITS]
        self.rows += int(known.sum())
        self._along, self._against = self._along + int((signs > 0).sum()), self._against + int((signs < 0).sum())
        names = list(ways)
        self.how.update(names[at] for at, turned in zip(which.tolist(), is_turned.tolist()) if turned)

    @property
    def most(self) -> tuple[int, str, int] | None:
        """The examples that fit only where turned, how most of them, and all that fit some way.

        ``None`` where as many lie along with their targets as against them: such as a velocity, to which noise adds.
        """
        if not self.how or min(self._along, self._against) > MIXED * (self._along + self._against):
            return None
        return sum(self.how.values()), self.how.most_common(1)[0][0], self.rows


def _flat(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    flat = pictures.float().cpu().reshape(len(pictures), -1, size[0] * size[1]).mean(1)
    return flat - flat.mean(1, keepdim=True)


def _products(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum(1)


def _correlations(one: Tensor, other: Tensor) -> Tensor:
    sizes = one.norm(dim=1) * other.norm(dim=1)
    return torch.where(sizes > 0, _products(one, other).abs() / sizes.clamp(min=1e-30), 0.0)
