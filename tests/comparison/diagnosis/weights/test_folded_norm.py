"""A batch norm that is folded into a convolution: a wrong bias or weight is named, a right one is no finding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fxdebug

FACTOR = "bn.weight / √(bn.running_var + eps)"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.bn(self.conv(x))).mean((2, 3)))  # type: ignore[no-any-return]


class Folded(nn.Module):
    @torch.no_grad()
    def __init__(self, net: Net, fault: str) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 6, 3, padding=1), net.last
        bn, old = net.bn, net.conv.bias
        assert bn.running_mean is not None and bn.running_var is not None and old is not None
        scale = bn.weight / (bn.running_var + bn.eps).sqrt()
        mean, beta = bn.running_mean, bn.bias
        if fault != "weight":
            self.conv.weight.copy_(net.conv.weight * scale[:, None, None, None])
        else:
            self.conv.weight.copy_(net.conv.weight)
        bias = {
            "bias": old + beta - mean * scale,
            "no bias": beta - mean * scale,
            "no beta": (old - mean) * scale,
            "no mean": old * scale + beta,
            "plus mean": (old + mean) * scale + beta,
        }
        assert self.conv.bias is not None
        self.conv.bias.copy_(bias.get(fault, (old - mean) * scale + beta))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.conv(x)).mean((2, 3)))  # type: ignore[no-any-return]


def net() -> Net:
    torch.manual_seed(0)
    made = Net().eval()
    for one in (made.bn.weight, made.bn.bias, made.bn.running_mean):
        assert one is not None
        nn.init.normal_(one, 1.0, 0.3)
    assert made.bn.running_var is not None
    nn.init.uniform_(made.bn.running_var, 0.2, 2.0)
    return made


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("weight", f"conv.weight is that of a, without the factor {FACTOR} of the norm that is folded in"),
        ("bias", f"conv.bias has bn folded in wrongly: the bias of a is not multiplied by {FACTOR}"),
        ("no bias", "conv.bias has bn folded in wrongly: the bias of a is left out"),
        ("no beta", "conv.bias has bn folded in wrongly: bn.bias is left out"),
        ("no mean", "conv.bias has bn folded in wrongly: bn.running_mean is left out"),
        ("plus mean", "conv.bias has bn folded in wrongly: bn.running_mean is added, not subtracted"),
    ],
)
def test_what_is_wrong_with_a_folded_norm_is_told(fault: str, told: str) -> None:
    right = net()
    for found in (
        fxdebug.compare_models(right, Folded(right, fault).eval(), torch.randn(2, 3, 8, 8)).findings,
        fxdebug.compare(*[fxdebug.fx_debug(m, torch.ones(2, 3, 8, 8)) for m in (right, Folded(right, fault))]).findings,
    ):
        assert [(row.path, row.kind, row.because) for row in found] == [("conv", "weights", told)]


def test_a_norm_that_is_folded_in_as_it_should_be_is_no_finding() -> None:
    right = net()
    assert fxdebug.compare_models(right, Folded(right, "").eval(), torch.randn(2, 3, 8, 8)).equal


class Padded(nn.Module):
    """Pads before its convolution, which has a norm behind it or that norm folded in."""

    def __init__(self, conv: nn.Module, norm: nn.Module, last: nn.Module, sides: list[int]) -> None:
        super().__init__()
        self.conv, self.bn, self.last, self.sides = conv, norm, last, sides

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(nn.functional.pad(x, self.sides)))
        return self.last(torch.relu(x).mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("fault", ["padding", "dilation"])
def test_what_differs_beside_a_rightly_folded_norm_is_told_and_no_norm_is_missing(fault: str) -> None:
    right = net()
    other = Folded(right, "")
    one = Padded(right.conv, right.bn, right.last, [0, 1, 0, 1])
    port = Padded(other.conv, nn.Identity(), other.last, [1, 0, 1, 0] if fault == "padding" else [0, 1, 0, 1])
    for conv in (right.conv, other.conv):
        conv.stride, conv.padding = (2, 2), (0, 0)
    if fault == "dilation":
        other.conv.dilation = (2, 2)
    found = fxdebug.compare_models(one.eval(), port.eval(), torch.randn(2, 3, 8, 8)).findings
    first = (found[0].op, found[0].kind, found[0].because, found[0].proven)
    assert (
        first
        == {
            "padding": ("pad", "constant", "pad=[0, 1, 0, 1] in a, pad=[1, 0, 1, 0] in b", True),
            "dilation": ("conv2d", "constant", "dilation=2 in b, and not in a", True),
        }[fault]
    )
    assert len(found) == 1 or fault == "dilation"  # what follows is given another shape
