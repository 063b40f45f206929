"""Another way to write a function stands behind a fault; other sizes and what was chosen are told by what made them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fxdebug import compare_models


class Nearest(nn.Module):
    """Places rows at the nearest of some points: by distances of torch, or by squares written out."""

    def __init__(self, *, squares: bool, turned: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.squares, self.turned = squares, turned
        self.points, self.leave = nn.Parameter(torch.randn(9, 6)), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.squares:
            apart = x.pow(2).sum(-1, keepdim=True) - 2 * x @ self.points.t() + self.points.pow(2).sum(-1)
        else:
            apart = torch.cdist(x, self.points)
        found = self.points[apart.argmin(-1)]
        return self.leave(found.t().reshape(found.shape) if self.turned else found)


def test_distances_of_which_the_same_are_the_least_are_no_finding_beside_a_fault() -> None:
    x = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert compare_models(Nearest(squares=False), Nearest(squares=True), x).findings == ()
        found = compare_models(Nearest(squares=False), Nearest(squares=True, turned=True), x)
    assert found.first is not None and found.first.op in ("t", "reshape")


class Lags(nn.Module):
    """Weights of the largest lags of a series with itself; ``whole``: the transform back keeps the odd length."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.whole, self.enter, self.leave = whole, nn.Linear(4, 4), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(self.enter(x), dim=1)
        length = {"n": x.shape[1]} if self.whole else {}
        lags = torch.fft.irfft(spectrum * spectrum.conj(), dim=1, **length).mean(-1)
        weights, _ = lags.topk(3, dim=1)
        return self.leave(weights.softmax(-1))


def test_another_size_is_told_before_what_is_chosen_from_it() -> None:
    x = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = compare_models(Lags(whole=True), Lags(whole=False), x, budget=0)
    assert [(row.op, row.kind, row.because) for row in found.findings] == [
        ("fft_irfft", "shape", "n=9 in a, no such argument in b: its result is 2×9×4 in a, 2×8×4 in b")
    ]
