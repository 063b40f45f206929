"""Layers, weights, tables and masks of a that are put into b: they repair what lacks them, and nothing else."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.comparison.result import Row

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(2))


class Block(nn.Module):
    """Adds what two projections make."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class Original(nn.Module):
    """Blocks, an attention to what is near, and a projection."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Parameter(torch.randn(5, 8))

    def far(self, count: int) -> Tensor:
        at = torch.arange(count)
        return (at[:, None] - at).abs().ge(3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        scores = (x @ x.mT).masked_fill(self.far(x.shape[1]), float("-inf"))
        return F.linear(scores.softmax(-1) @ x, self.head)


class Port(Original):
    """The same with its head transposed."""

    def __init__(self, layers: int = 3, noise: float = 0.0) -> None:
        super().__init__(layers)
        self.head = nn.Parameter(Original(3).head.detach().mT.contiguous() + noise * torch.randn(8, 5))
        self.load_state_dict(Original(3).state_dict() | {"head": self.head.detach()}, strict=False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        scores = (x @ x.mT).masked_fill(self.far(x.shape[1]), float("-inf"))
        return scores.softmax(-1) @ x @ self.head


class OtherBand(Port):
    """Hides what is far on one side, and half of the other."""

    def far(self, count: int) -> Tensor:
        return super().far(count).roll(1, 0)


class OtherBandAndSquares(OtherBand):
    """Returns something else, too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * x.cumsum(1).cos()[..., :5]


def rows(port: nn.Module) -> list[Row]:
    return list(compare_models(Original(), port, X).findings)


def test_a_port_that_is_right_has_no_finding() -> None:
    assert not rows(Port())


def test_a_layer_that_b_lacks_is_put_behind_the_last_one() -> None:
    (row,) = rows(Port(layers=2))
    assert (row.kind, row.proven) == ("missing", True)
    assert row.repair == "blocks.2 of a after add: with this edit b returns what a returns"


def test_weights_that_differ_are_replaced_however_they_lie() -> None:
    (row,) = rows(Port(noise=0.3))
    assert (row.kind, row.proven) == ("weights", True) and "head" in row.because


def test_a_mask_that_differs_is_proven_by_that_of_a() -> None:
    row = rows(OtherBand())[0]
    assert row.proven, (row.because, row.repair)


def test_a_mask_is_not_proven_beside_another_fault() -> None:
    assert not any("with the numbers of" in row.repair and row.proven for row in rows(OtherBandAndSquares())[:1])
