"""Modules in train mode against those in eval mode: named where that is the only difference."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare_models


class Stages(nn.Module):
    """Adds what its first stages return, in training what all return."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        stages = self.stages if self.training else [*self.stages][:2]
        return sum([stage(x) for stage in stages], x)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), Stages(), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()


def told(a: nn.Module, b: nn.Module) -> list[tuple[str, str, bool, str]]:
    found = compare_models(a, b, torch.randn(3, 4, generator=torch.Generator().manual_seed(1)))
    return [(row.path, row.because, row.proven, row.repair) for row in found.findings]


@pytest.mark.parametrize("place", ["1", "2", "3"])
def test_a_module_left_in_train_mode_is_the_cause(place: str) -> None:
    model = net()
    model.get_submodule(place).train()
    repair = f"with {place}.eval() b returns what a returns"
    assert told(net(), model) == [(place, "eval mode in a, train mode in b", True, repair)]
    assert next(name for name, module in model.named_modules() if module.training) == place


def test_a_whole_model_in_train_mode_is_one_finding() -> None:
    model = net().train()
    repair = "with b.eval() b returns what a returns"
    assert told(net(), model) == [("", "eval mode in a, train mode in b", True, repair)]
    assert told(model, net()) == [
        ("", "train mode in a, eval mode in b", True, "with b.train() b returns what a returns")
    ]


def test_modes_without_an_effect_are_no_finding() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    port = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()).eval()
    port.load_state_dict(model.state_dict())
    port[1].forward = lambda x: 1 - 2 * torch.sigmoid(-2 * x)  # the same but for the last bits
    assert told(model, port) == []


def test_modes_beside_another_fault_are_not_told_as_the_cause() -> None:
    model = copy.deepcopy(net())
    model.get_submodule("1").train()
    with torch.no_grad():
        model.get_parameter("4.weight").mul_(2)
    assert not any("mode in b" in because for _, because, _, _ in told(net(), model))
