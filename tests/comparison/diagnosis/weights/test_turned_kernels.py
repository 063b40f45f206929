"""A kernel that was loaded turned is told as such, also where a pads outside of the convolution and b inside it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fxdebug import compare, compare_models, fx_debug
from fxdebug.data.values import Keeping


class Outside(nn.Module):
    """A depthwise convolution that is given padded inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(self.norm(x).relu(), (1, 1, 1, 1))).mean((2, 3))


class Within(nn.Module):
    """The same, with the padding of the convolution."""

    def __init__(self, padding: int = 1) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=padding, groups=8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.norm(x).relu()).mean((2, 3))


X = torch.randn(2, 8, 10, 10, generator=torch.Generator().manual_seed(0))


def pair(*, turned: bool, padding: int = 1) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    a, b = Outside().eval(), Within(padding).eval()
    b.load_state_dict(a.state_dict())
    if turned:
        b.conv.weight.data = a.conv.weight.data.transpose(2, 3).clone()
    return a, b


@pytest.mark.parametrize("keeping", ["stats", "tensors"])
def test_a_turned_kernel_is_told_beside_other_padding(keeping: Keeping):
    a, b = pair(turned=True)
    with torch.no_grad():
        found = compare(fx_debug(a, X, values=keeping), fx_debug(b, X, values=keeping))
        first = compare_models(a, b, X).findings[0]
    told = "conv.weight is that of a with its dimensions 2 and 3 transposed"
    assert [(row.path, row.kind, row.because) for row in found.findings] == [("conv", "weights", told)]
    assert (first.path, first.kind, first.because) == ("conv", "weights", told)


def test_padding_in_another_place_alone_is_equal():
    with torch.no_grad():
        assert compare_models(*pair(turned=False), X).equal


def test_padding_that_is_missing_is_told_where_the_kernel_is_that_of_a():
    with torch.no_grad():
        first = compare_models(*pair(turned=False, padding=0), X).findings[0]
    assert (first.op, first.kind) == ("pad", "missing")


class Experts(nn.Module):
    """Experts whose square weights are slices of one stack."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(3, 16, 16) * 0.3) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(
            [F.linear(F.silu(F.linear(x, self.up[at])), self.down[at]) for at in range(len(self.down))]
        ).sum(0)


@pytest.mark.parametrize("name", ["up", "down"])
def test_a_stack_of_square_weights_that_is_transposed_is_told_by_its_name(name):
    torch.manual_seed(2)
    a = Experts().eval()
    b = copy.deepcopy(a)
    setattr(b, name, nn.Parameter(a.get_parameter(name).detach().transpose(1, 2).clone()))
    with torch.no_grad():
        first = compare_models(a, b, torch.randn(5, 16)).findings[0]
    assert (first.kind, first.because) == ("weights", f"{name} is that of a with its dimensions 1 and 2 transposed")
