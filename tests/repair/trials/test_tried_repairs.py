"""Causes that ``compare_models`` tries: an edit is proven where b then returns what a returns, and only there."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.comparison.result import ComparisonData
from support.watched import state_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.approximate, self.factor, self.narrow, self.squashes = "tanh", 1.0, False, torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        y = self.squashes(self.down(F.gelu(self.up(self.norm(x)), approximate=self.approximate)))
        if self.factor != 1.0:
            y = y * self.factor
        if self.narrow:
            y = y.bfloat16().float()
        return x + y


def change(**attributes: object) -> Callable[[nn.Module], None]:
    return lambda model: [setattr(model[1], name, thing) for name, thing in attributes.items()] and None


@torch.no_grad()
def shuffled(model: nn.Module) -> None:
    model[1].up.weight.copy_(model[1].up.weight.flip(0))


X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)) * 3
FAULTS: dict[str, tuple[Callable[[nn.Module], None], str]] = {
    "constant": (change(approximate="none"), "gelu with the settings of a"),
    "weights": (shuffled, "linear with the weights of a"),
    "extra": (change(factor=1.5), "mul left out"),
    "dtype": (change(narrow=True), "bfloat16 left out"),
    "operation": (change(squashes=torch.sigmoid), "tanh of a in the place of sigmoid"),
}


def blocks() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(3)]).eval()


def told(found: ComparisonData) -> list[tuple[str, bool, str]]:
    return [(row.path, row.proven, row.repair) for row in found.findings]


@pytest.mark.parametrize("kind", FAULTS)
def test_the_edit_that_repairs_a_fault_is_proven(kind: str) -> None:
    plant, words = FAULTS[kind]
    right = blocks()
    wrong = copy.deepcopy(right)
    plant(wrong)
    found = fxdebug.compare_models(right, wrong, X)
    ((path, proven, repair),) = told(found)
    assert path.startswith("1") and proven and found.repaired
    assert repair == f"{words}: with this edit b returns what a returns"
    assert repair in " ".join(found.text(width=200).split())
    assert found.as_json()["findings"][0]["repair"] == repair


def test_an_operation_that_b_lacks_is_put_before_the_one_that_uses_its_result() -> None:
    wrong = blocks()
    right = copy.deepcopy(wrong)
    change(factor=1.5)(right)
    assert told(fxdebug.compare_models(right, wrong, X)) == [
        ("1", True, "mul of a before add: with this edit b returns what a returns")
    ]


def test_two_faults_are_proven_together_with_the_effect_of_each_the_larger_one_first() -> None:
    right = blocks()
    wrong = copy.deepcopy(right)
    change(approximate="none")(wrong)
    wrong[2].norm.eps = 0.1
    rows = told(fxdebug.compare_models(right, wrong, X))
    whole, apart = "with this and 1 more edit b returns what a returns", "; without this one it differs by "
    assert [(path, proven, repair.partition(apart)[0]) for path, proven, repair in rows] == [
        ("2.norm", True, f"layer_norm with the settings of a: {whole}"),
        ("1", True, f"gelu with the settings of a: {whole}"),
    ]
    effects = [float(repair.partition(apart)[2]) for _, _, repair in rows]
    alone = []
    for plant in (change(approximate="none"), lambda model: setattr(model[2].norm, "eps", 0.1)):
        other = copy.deepcopy(right)
        plant(other)
        with torch.no_grad():
            difference = (other(X) - right(X)).square().mean().sqrt() / right(X).square().mean().sqrt()
        alone.append(float(difference))
    assert effects == pytest.approx(alone[::-1], rel=0.3)


class Returned(nn.Module):
    """Returns what it is given, or turns it round where no operation of torch can be replaced."""

    turned = False

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy()[..., ::-1].copy()) if self.turned else x


def test_an_edit_after_which_b_still_returns_something_else_is_no_proof() -> None:
    torch.manual_seed(0)
    right = nn.Sequential(*[Block() for _ in range(3)], Returned()).eval()
    wrong = copy.deepcopy(right)
    wrong[3].turned = True
    change(factor=1.5)(wrong)
    found = fxdebug.compare_models(right, wrong, X)
    assert not found.repaired
    assert all(not row.proven and "b returns what a returns" not in row.repair for row in found.findings)


def test_equal_models_and_no_budget_try_nothing() -> None:
    right = blocks()
    wrong = copy.deepcopy(right)
    change(approximate="none")(wrong)
    assert told(fxdebug.compare_models(right, copy.deepcopy(right), X)) == []
    assert told(fxdebug.compare_models(right, wrong, X, budget=0)) == [("1", False, "")]


def test_the_models_and_the_random_state_are_as_before() -> None:
    right = blocks()
    wrong = copy.deepcopy(right)
    shuffled(wrong)

    def state() -> list[object]:
        tensors = [tensor.tolist() for model in (right, wrong) for tensor in model.state_dict().values()]
        return [state_of(right), state_of(wrong), tensors, torch.get_rng_state().tolist()]

    before = state()
    assert fxdebug.compare_models(right, wrong, X).repaired
    assert state() == before
