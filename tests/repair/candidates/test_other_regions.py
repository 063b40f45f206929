"""Operations of a in the place of those of b, where both compute a value another way and no single one is at fault."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.comparison.result import Row


class Experts(nn.Module):
    """Sends each row to two experts, computed all at once."""

    def __init__(self, chosen_first: bool = True) -> None:
        super().__init__()
        self.chosen_first = chosen_first
        torch.manual_seed(0)
        self.gate = nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 16) / 3), nn.Parameter(torch.randn(4, 16, 8) / 3)

    def chosen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.gate(x)
        if not self.chosen_first:
            weights, experts = scores.softmax(-1).topk(2, -1)
            return weights, experts
        weights, experts = scores.topk(2, -1)
        return weights.softmax(-1), experts

    def forward(self, x: Tensor) -> Tensor:
        weights, experts = self.chosen(x)
        hidden = F.silu(torch.einsum("td,edh->teh", x, self.up))
        made = torch.einsum("teh,ehd->ted", hidden, self.down)
        taken = made.gather(1, experts[..., None].expand(-1, -1, x.shape[1]))
        return (taken * weights[..., None]).sum(1)


class InLoop(Experts):
    """Computes one expert after the other."""

    def forward(self, x: Tensor) -> Tensor:
        weights, experts = self.chosen(x)
        out = torch.zeros_like(x)
        for expert in range(4):
            rows, slots = torch.where(experts == expert)
            made = F.silu(x[rows] @ self.up[expert]) @ self.down[expert]
            out.index_add_(0, rows, made * weights[rows, slots, None])
        return out


class TwoNorms(nn.Module):
    """Norms of two halves, of which a port may take one for both."""

    def __init__(self, one_for_both: bool = False) -> None:
        super().__init__()
        self.one_for_both = one_for_both
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)
        self.left, self.right = nn.LayerNorm(6), nn.LayerNorm(6)
        for norm in (self.left, self.right):
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.first(x).chunk(2, -1)
        left = (self.right if self.one_for_both else self.left)(left)
        return self.last(torch.cat([left, self.right(right)], -1).tanh())  # type: ignore[no-any-return]


def found(a: nn.Module, b: nn.Module, x: Tensor) -> list[Row]:
    return list(compare_models(a, b, x).findings)


def test_softmax_before_the_choice_of_experts_is_repaired_by_the_operations_of_a() -> None:
    (row,) = found(Experts(), InLoop(chosen_first=False), torch.randn(10, 8))
    assert (row.op, row.proven) == ("softmax", True)
    assert row.because.startswith("softmax stands in another order: it is given the result of topk in a")
    assert (
        row.repair == "topk, softmax of a in the place of all that makes topk: with this edit b returns what a returns"
    )


def test_a_norm_of_another_part_is_told_with_the_weights_of_both() -> None:
    (row,) = found(TwoNorms(), TwoNorms(one_for_both=True), torch.randn(4, 6))
    assert (row.path, row.op, row.proven) == ("right", "layer_norm", True)
    assert row.because == "layer_norm is given left.weight, left.bias in a, right.weight, right.bias in b"
    assert row.repair == (
        "layer_norm with left.weight, left.bias of a in the place of all that makes layer_norm: "
        "with this edit b returns what a returns"
    )


@pytest.mark.parametrize("other", [Experts, InLoop])
def test_the_same_router_written_in_a_loop_is_no_finding(other: type[Experts]) -> None:
    assert not found(Experts(), other(), torch.randn(10, 8))


class TwoFaults(InLoop):
    """Returns the elements in another order, too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sort(0).values


def test_operations_that_repair_a_part_of_the_difference_are_proven_with_those_that_repair_the_rest() -> None:
    rows = found(Experts(), TwoFaults(chosen_first=False), torch.randn(10, 8))
    assert [(row.op, row.proven) for row in rows] == [("topk", True), ("sort", True)]
    assert all("with this and 1 more edit" in row.repair for row in rows)
