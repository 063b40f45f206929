"""Operations of a in the place of those of b at all places where the same code of b runs, by their values alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.comparison.result import Row


class Resizes(nn.Module):
    """Makes images larger at two places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(self.first(x).relu(), scale_factor=2.0, mode="bilinear")
        return F.interpolate(self.last(x), scale_factor=2.0, mode="bilinear")


class ByMatrices(Resizes):
    """Does so by two small matrices, with channels last."""

    def __init__(self, corner: float, noise: float = 0.0) -> None:
        super().__init__()
        self.corner, self.noise = corner, noise

    def rows(self, size: int) -> Tensor:
        at = ((torch.arange(2 * size) + self.corner) / 2 - self.corner).clamp(0, size - 1)
        low = at.floor().long()
        made = torch.zeros(2 * size, size)
        made[torch.arange(2 * size), low] += 1 - (at - low)
        made[torch.arange(2 * size), (low + 1).clamp(max=size - 1)] += at - low
        return made

    def larger(self, x: Tensor) -> Tensor:
        return torch.einsum("oh,nhwc,pw->nopc", self.rows(x.shape[1]), x, self.rows(x.shape[2]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).clamp(min=0).permute(0, 2, 3, 1)
        x = self.larger(x + self.noise * torch.arange(6.0))
        x = self.larger(F.linear(x, self.last.weight.flatten(1), self.last.bias))
        return x.permute(0, 3, 1, 2)


class Crops(nn.Module):
    """Cuts what a transposed convolution adds around an image."""

    def __init__(self, begin: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.last, self.begin = nn.ConvTranspose2d(3, 6, 4, 2), nn.Conv2d(6, 3, 3, padding=1), begin

    def forward(self, x: Tensor) -> Tensor:
        if self.begin is None:
            y = F.conv_transpose2d(x, self.up.weight, self.up.bias, 2, 1)
        else:
            own = slice(self.begin, self.begin + 2 * x.shape[-1])
            y = self.up(x)[:, :, own, own]
        return self.last(y).relu()


class Layers(nn.Module):
    """Runs some layers of four, and a norm behind them."""

    def __init__(self, count: int, shift: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(4))
        self.norm, self.count, self.shift = nn.LayerNorm(8), count, shift

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[: self.count]:
            x = layer(x)
        return self.norm(x + self.shift * torch.arange(8.0))


def told(a: nn.Module, b: nn.Module, x: Tensor) -> Row:
    found = compare_models(a.eval(), b.eval(), x, budget=30).first
    assert found is not None
    return found


def test_a_resize_at_other_coordinates_is_repaired_wherever_it_runs() -> None:
    row = told(Resizes(), ByMatrices(corner=0.0), torch.randn(2, 3, 5, 7))
    assert (row.op, row.proven, row.by_region) == ("einsum", True, True)
    assert row.because == "interpolate in a, einsum in b"
    assert "and at 1 more place of this line" in row.repair


def test_the_same_resize_by_matrices_is_no_finding() -> None:
    assert not compare_models(Resizes(), ByMatrices(corner=0.5), torch.randn(2, 3, 5, 7)).findings


def test_what_b_adds_before_is_among_the_operations_that_are_replaced() -> None:
    row = told(Resizes(), ByMatrices(corner=0.0, noise=0.5), torch.randn(2, 3, 5, 7))
    assert (row.op, row.proven, row.by_region) == ("einsum", True, True)
    assert "interpolate in a" in row.because and "add" in row.because


@pytest.mark.parametrize(("begin", "needed"), [(0, "0:10 of dimensions 2 and 3"), (2, "2:12 of dimensions 2 and 3")])
def test_a_crop_from_another_side_is_told_with_both_bounds(begin: int, needed: str) -> None:
    row = told(Crops(), Crops(begin), torch.randn(2, 3, 5, 5))
    assert (row.op, row.proven) == ("getitem", True)
    assert row.because == f"{needed} in b, where a's values need 1:11"
    assert not compare_models(Crops(), Crops(1), torch.randn(2, 3, 5, 5)).findings


def test_a_layer_too_many_has_no_counterpart() -> None:
    row = told(Layers(3), Layers(4), torch.randn(5, 8))
    assert (row.path, row.kind, row.proven) == ("layers.3", "extra", True)
    assert row.because == "layers.3 has no counterpart in a"


def test_a_layer_too_many_is_not_all_where_something_else_differs() -> None:
    row = told(Layers(3), Layers(4, shift=0.5), torch.randn(5, 8))
    assert not (row.path == "layers.3" and row.proven and "more edit" not in row.repair)
