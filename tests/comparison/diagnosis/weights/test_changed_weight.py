"""How a weight differs is said: what was exchanged, multiplied, transposed, lost, or taken from elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import fxdebug


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.one = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.two = nn.Linear(8, 8)
        self.conv = nn.Conv1d(5, 5, 3, padding=1)
        self.head = nn.Linear(8, 9, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.norm(self.one(self.words(tokens))))
        return self.head(self.conv(torch.tanh(self.two(x))))


def _net() -> Net:
    torch.manual_seed(0)
    net = Net()
    for weight in net.parameters():
        nn.init.normal_(weight)
    return net


def _set(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Net], None]:
    def edit(net: Net) -> None:
        module, _, leaf = name.rpartition(".")
        numbers = change(net.get_parameter(name).detach().clone())
        setattr(net.get_submodule(module), leaf, nn.Parameter(numbers))

    return edit


def _rows(weight: torch.Tensor) -> torch.Tensor:
    weight[[3, 6]] = weight[[6, 3]]
    return weight


def _last(weight: torch.Tensor) -> torch.Tensor:
    weight[-1] = 0
    return weight


def _one_number(weight: torch.Tensor) -> torch.Tensor:
    weight[2, 5] += 1
    return weight


def _exchanged(net: Net) -> None:
    net.one.weight, net.two.weight = net.two.weight, net.one.weight


CHANGES: dict[str, tuple[Callable[[Net], None], str]] = {
    "rows": (_set("two.weight", _rows), "two.weight is that of a with rows 3 and 6 exchanged"),
    "elements": (_set("one.bias", _rows), "one.bias is that of a with elements 3 and 6 exchanged"),
    "factor": (_set("two.weight", lambda w: w * 1.5), "two.weight is that of a × 1.5"),
    "sign": (_set("two.bias", lambda w: -w), "two.bias is that of a with the other sign"),
    "one less": (_set("norm.weight", lambda w: w - 1), "norm.weight is that of a - 1"),
    "zero": (_set("two.bias", lambda w: w * 0), "two.bias is zero, that of a is not"),
    "transposed": (_set("two.weight", lambda w: w.T.clone()), "two.weight is that of a transposed"),
    "reversed": (_set("two.weight", lambda w: w.flip(0)), "two.weight is that of a with rows in reverse order"),
    "halves": (
        _set("two.weight", lambda w: w.view(2, 4, 8).transpose(0, 1).reshape(8, 8)),
        "two.weight is that of a with the halves of its rows interleaved",
    ),
    "last row": (_set("two.weight", _last), "row 7 of two.weight is zero, in a it is not"),
    "a number": (_set("two.weight", _one_number), "row 2 of two.weight differs from that of a"),
    "kernel": (_set("conv.weight", lambda w: w.flip(2)), "conv.weight is that of a with slices along dimension 2"),
    "exchanged": (_exchanged, "one.weight is two.weight of a, not one.weight: exchanged with two.weight"),
    "untied": (
        _set("head.weight", torch.randn_like),
        "head.weight has numbers of its own, in a it is tied to words.weight",
    ),
    "bfloat16": (
        _set("two.weight", lambda w: w.bfloat16().float()),
        "two.weight is that of a but for as much as rounding to bfloat16 changes",
    ),
    "float16": (
        _set("one.weight", lambda w: w.half().float()),
        "one.weight is that of a but for as much as rounding to float16 changes",
    ),
    "others": (_set("two.weight", torch.randn_like), "two.weight differs from that of a"),
}


@pytest.mark.parametrize("compared", ["compare", "compare_models"])
@pytest.mark.parametrize("name", CHANGES)
def test_it_is_said_how_a_weight_differs(name: str, compared: str) -> None:
    edit, told = CHANGES[name]
    a, b, tokens = _net(), copy.deepcopy(_net()), torch.arange(10).view(2, 5) % 9
    edit(b)
    with torch.no_grad():
        if compared == "compare":
            runs = [fxdebug.fx_debug(model, tokens, values="tensors") for model in (a, b)]
            first = fxdebug.compare(*runs).first
        else:
            first = fxdebug.compare_models(a, b, tokens).first
    assert first is not None
    assert first.kind == "weights"
    assert first.because.startswith(told), first.because
