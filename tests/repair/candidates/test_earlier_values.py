"""An operation of b that takes the wrong one of two values at hand is named, and shares not divided by their sum."""

import pytest
import torch
from torch import Tensor, nn

import fxdebug


class Experts(nn.Module):
    """Chooses two of six experts by scores with a bias, and weights what they make by the scores without it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 6, bias=False)
        self.bias = nn.Parameter(torch.linspace(-0.3, 0.3, 6))
        self.up = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x).sigmoid()
        chosen = (scores + self.bias).topk(2, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for expert, up in enumerate(self.up):
            rows, slots = torch.where(chosen == expert)
            out.index_add_(0, rows, up(x[rows]).relu() * weights[rows, slots, None])
        return x + out


class Fused(nn.Module):
    """All experts at once; ``taken`` are the scores with which they are weighted."""

    def __init__(self, model: Experts, taken: str) -> None:
        super().__init__()
        self.router, self.taken = nn.Parameter(model.gate.weight.detach().clone()), taken
        self.correction = nn.Parameter(model.bias.detach().clone())
        self.w1 = nn.Parameter(torch.stack([up.weight.detach() for up in model.up]))

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.sigmoid(x @ self.router.T)
        biased = scores + self.correction
        ids = biased.argsort(-1, descending=True)[:, :2]
        kept = torch.gather(biased if self.taken == "biased" else scores, 1, ids)
        if self.taken != "undivided":
            kept = kept / kept.sum(1, keepdim=True)
        if self.taken == "squares":
            kept = kept.square()
        dense = torch.zeros_like(scores).scatter_(1, ids, kept)
        return torch.einsum("te,ted->td", dense, torch.einsum("td,eod->teo", x, self.w1).relu()) + x


@pytest.fixture
def experts() -> Experts:
    torch.manual_seed(0)
    return Experts().eval()


x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def test_scores_with_the_bias_of_the_choice_are_told_where_those_without_it_belong(experts: Experts) -> None:
    first = fxdebug.compare_models(experts, Fused(experts, "biased").eval(), x).first
    assert first is not None and first.proven
    assert first.where == "Fused/gather"
    assert first.because == "gather is given the result of add in b, where a's values need what add is given"
    assert first.repair == "gather given what add is given: with this edit b returns what a returns"


def test_shares_that_are_not_divided_by_their_sum_are_told(experts: Experts) -> None:
    first = fxdebug.compare_models(experts, Fused(experts, "undivided").eval(), x).first
    assert first is not None and first.proven
    assert first.where == "Fused/gather"
    assert first.because == "what gather returns is not divided by its sum over the last dimension, as a's values are"


def test_another_value_is_not_told_where_none_at_hand_repairs_the_port(experts: Experts) -> None:
    found = fxdebug.compare_models(experts, Fused(experts, "squares").eval(), x)
    told = [row.because for row in found.findings]
    assert told and not [because for because in told if "is given the result of" in because or "its sum" in because]
    assert not fxdebug.compare_models(experts, Fused(experts, "scores").eval(), x).findings
