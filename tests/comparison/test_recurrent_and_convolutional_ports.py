"""Ports of recurrent and convolutional nets that write out what a does in one operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison

WAYS = ("stats", "tensors", "models")


def compared(a: nn.Module, b: nn.Module, inputs: Any, way: str) -> Comparison:
    with torch.no_grad():
        if way == "models":
            return compare_models(a, b, inputs)
        return compare(*(fx_debug(model, inputs, values=way) for model in (a, b)))  # type: ignore[arg-type]


# Convolutions written as products of patches --------------------------------------------------------


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.body(x).relu().mean((2, 3)))


class Patches(nn.Module):
    """The same with norms folded in, whose biases are added as columns."""

    def __init__(self, a: Any) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for conv, norm in ((a.body[0], a.body[1]), (a.body[3], a.body[4])):
            scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            bias = 0.0 if conv.bias is None else conv.bias
            self.weights.append(nn.Parameter((conv.weight * scale[:, None, None, None]).detach().flatten(1)))
            self.biases.append(nn.Parameter((norm.bias + (bias - norm.running_mean) * scale).detach()))
        self.head = nn.Linear(8, 4)
        self.head.load_state_dict(a.head.state_dict())

    def conv(self, x: torch.Tensor, i: int, size: int) -> torch.Tensor:
        patches = F.unfold(x, size, padding=size // 2)
        y = torch.einsum("oc,bcl->bol", self.weights[i], patches) + self.biases[i][:, None]
        return y.view(len(x), -1, *x.shape[2:])

    def forward(self, x: torch.Tensor) -> Any:
        x = self.conv(self.conv(x, 0, 1).relu(), 1, 3).relu()
        return self.head(x.flatten(2).mean(2))


@pytest.mark.parametrize("way", WAYS)
def test_batch_norms_folded_into_products_with_a_bias_added_as_a_column_are_equal(way):
    torch.manual_seed(0)
    a = Convolutional().eval()
    with torch.no_grad():
        for norm in (a.body[1], a.body[4]):
            for weight in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                weight.uniform_(0.5, 2.0)
    found = compared(a, Patches(a), torch.randn(2, 3, 6, 6), way)
    assert (found.findings, found.verdict) == ((), "equal")
