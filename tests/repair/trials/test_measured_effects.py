"""What a cause does to what is returned is measured, orders the findings, and stands beside notes on last bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fxdebug import compare_models
from fxdebug.api.comparison import Comparison


class Norm(nn.Module):
    def __init__(self, by_root: bool) -> None:
        super().__init__()
        self.weight, self.by_root, self.eps = nn.Parameter(torch.linspace(0.5, 1.5, 16)), by_root, 1e-6

    def forward(self, x: Tensor) -> Tensor:
        size = x.square().mean(-1, keepdim=True) + self.eps
        return self.weight * (x / torch.sqrt(size) if self.by_root else x * torch.rsqrt(size))


class Block(nn.Module):
    def __init__(self, by_root: bool) -> None:
        super().__init__()
        self.norm, self.up, self.down = Norm(by_root), nn.Linear(16, 32), nn.Linear(32, 16)
        self.approximate, self.scale = "none", 1.0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(F.gelu(self.up(self.norm(x)), approximate=self.approximate))
        return x + y * self.scale


class Net(nn.Module):
    def __init__(self, by_root: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.head = nn.ModuleList(Block(by_root) for _ in range(3)), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


X = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))


def moved(b: Net) -> float:
    """How far the port is from the original, as the comparison measures it."""
    with torch.no_grad():
        one, other = Net()(X).double(), b(X).double()
    gap = one - other
    return max(float(gap.norm() / one.norm()), float(gap.abs().max() / one.abs().max()))


def found(b: Net) -> Comparison:
    with torch.no_grad():
        return compare_models(Net(), b, X)


def test_the_effect_of_one_cause_is_that_of_all_its_places() -> None:
    port = Net()
    for block in port.blocks:
        block.approximate = "tanh"
    comparison = found(port)
    (cause,) = comparison.causes
    assert [row.path for row in cause] == ["blocks.0", "blocks.1", "blocks.2"]
    assert {row.effect for row in cause} == {cause[0].effect} and cause[0].effect is not None
    assert cause[0].effect == pytest.approx(moved(port), rel=0.05)  # the differences are small: they add up
    assert f"{cause[0].effect:.3g} of what is returned, in 3 places together" in str(comparison)


def test_the_cause_with_the_largest_effect_is_first() -> None:
    port = Net()
    port.blocks[0].norm.eps = 2e-4
    port.blocks[1].approximate = "tanh"
    port.blocks[2].scale = 1.5
    rows = found(port).findings
    effects = [row.effect for row in rows]
    assert rows[0].path == "blocks.2" and None not in effects
    assert effects == sorted(effects, reverse=True)
    alone = Net()
    alone.blocks[2].scale = 1.5
    assert effects[0] == pytest.approx(moved(alone), rel=1e-3)


def test_the_last_bits_of_another_way_to_write_are_a_note_with_its_effect_and_no_finding() -> None:
    comparison = found(Net(by_root=True))
    assert comparison.equal and not comparison.findings
    note = comparison.notes[0]
    assert note.startswith("blocks.0.norm/div and 2 more: given the same, other last bits than in a (")
    assert note.endswith(("e-07 of what is returned", "e-08 of what is returned"))
    assert not any("last bits" in each for each in found(Net()).notes)
