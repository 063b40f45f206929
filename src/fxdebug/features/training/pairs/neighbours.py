"""Is a matrix of neighbours multiplied by their numbers, where it is to be divided by them?"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

MOST, FEWEST = 2048, 8  # rows
NEARLY_ALL = 0.99
CLOSE = 1e-4
POWERS = {"D A": (1.0, 0.0), "A D": (0.0, 1.0), "D A D": (1.0, 1.0), "D^½ A D^½": (0.5, 0.5)}


def multiplied(given: Iterable[Tensor]) -> tuple[str, float, float] | None:
    """Return how a matrix of neighbours is multiplied by the number of these, the largest sum of a row, and powers.

    Of several matrices the first is looked at; the last number is how many times as large the last one is.

    >>> a = (torch.rand(20, 20, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    >>> degrees = torch.diag(a.sum(1))
    >>> multiplied([degrees @ a])[0], multiplied([a]), multiplied([torch.linalg.inv(degrees + torch.eye(20)) @ a])
    ('D A', None, None)
    """
    for one in given:
        is_square = type(one) is Tensor and one.layout is torch.strided and one.dim() in (2, 3)
        if not is_square or one.shape[-1] != one.shape[-2] or not FEWEST <= one.shape[-1] <= MOST:
            continue
        if not one.is_floating_point() or one.requires_grad or not len(one):
            continue
        first = (one if one.dim() == 2 else one[0]).detach().double()
        linked = first != 0
        rows, columns = linked.sum(1).double(), linked.sum(0).double()
        if bool((first < 0).any()) or float(linked.double().mean()) > NEARLY_ALL or len(rows.unique()) < 3:
            continue
        for name, (before, behind) in POWERS.items():
            wanted = (rows[:, None] ** before * columns[None] ** behind)[linked]
            alike = ((first[linked] - wanted).abs() < CLOSE * wanted).double().mean()
            if float(alike) > NEARLY_ALL:
                grown = float(one[-1].detach().double().norm() / first.norm()) if one.dim() == 3 else 1.0
                return name, float(first.sum(1).max()), grown
    return None
