"""An adapter (LoRA) that is merged into the weight of its layer: rightly, with another factor, or once more."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fxdebug


class Adapted(nn.Module):
    """A linear layer with an adapter, in the way of peft."""

    def __init__(self, rank: int = 4, alpha: float = 16.0, bias: bool = False) -> None:
        super().__init__()
        self.base_layer, self.scaling = nn.Linear(16, 16), alpha / rank
        self.lora_A, self.lora_B = nn.Linear(16, rank, bias=False), nn.Linear(rank, 16, bias=bias)
        self.lora_dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(self.lora_dropout(x))) * self.scaling

    @property
    def product(self) -> Tensor:
        return self.lora_B.weight @ self.lora_A.weight


class Net(nn.Module):
    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.norm, self.q, self.v, self.out = nn.LayerNorm(16), layer(), layer(), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.out(torch.tanh(self.q(y)) * self.v(y))


def adapted(bias: bool = False) -> Net:
    torch.manual_seed(0)
    return Net(lambda: Adapted(bias=bias)).eval()


def merged(model: Net, scale: float, of_bias: float = 0.0) -> Net:
    port = Net(lambda: nn.Linear(16, 16)).eval()
    port.norm.load_state_dict(model.norm.state_dict())
    port.out.load_state_dict(model.out.state_dict())
    for name in ("q", "v"):
        one, other = getattr(model, name), getattr(port, name)
        with torch.no_grad():
            other.weight.copy_(one.base_layer.weight + scale * one.product)
            other.bias.copy_(one.base_layer.bias + (of_bias * one.lora_B.bias if of_bias else 0.0))
    return port


x = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
PRODUCT = "q.lora_B.weight @ q.lora_A.weight"


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (1.0, f"q.weight is q.base_layer.weight of a + 1 × {PRODUCT}, and a adds 4 × it"),
        (16.0, f"q.weight is q.base_layer.weight of a + 16 × {PRODUCT}, and a adds 4 × it"),
        (-4.0, f"q.weight is q.base_layer.weight of a + -4 × {PRODUCT}, and a adds 4 × it"),
        (2.7, f"q.weight is not q.base_layer.weight of a + 4 × {PRODUCT}"),
    ],
)
def test_the_factor_with_which_an_adapter_is_merged_is_told(scale: float, said: str) -> None:
    model = adapted()
    found = fxdebug.compare_models(model, merged(model, scale), x).findings
    assert [(one.path, one.kind) for one in found] == [("q", "weights"), ("v", "weights")]
    assert found[0].because == said


def test_an_adapter_that_is_merged_rightly_is_no_difference() -> None:
    model = adapted()
    assert fxdebug.compare_models(model, merged(model, 4.0), x).equal
    model = adapted(bias=True)
    assert fxdebug.compare_models(model, merged(model, 4.0, of_bias=4.0), x).equal


@pytest.mark.parametrize(
    ("of_bias", "said"),
    [
        (1.0, "+ 1 × q.lora_B.bias, and a adds 4 × it"),
        (0.0, "without 4 × q.lora_B.bias, which a adds: it is not merged in"),
    ],
)
def test_a_bias_of_an_adapter_that_is_merged_without_the_scale_or_not_at_all_is_told(of_bias: float, said: str) -> None:
    model = adapted(bias=True)
    found = fxdebug.compare_models(model, merged(model, 4.0, of_bias=of_bias), x).findings
    assert found[0].because == f"q.bias is q.base_layer.bias of a {said}"


@pytest.mark.parametrize("added_again", [True, False])
def test_an_adapter_that_is_merged_and_kept_is_added_once_more_unless_it_is_zero(added_again: bool) -> None:
    model = adapted()
    port = copy.deepcopy(model)
    for layer in (port.q, port.v):
        assert isinstance(layer, Adapted)
        with torch.no_grad():
            layer.base_layer.weight += layer.scaling * layer.product
            if not added_again:
                layer.lora_B.weight.zero_()
    found = fxdebug.compare_models(model, port, x)
    assert found.equal is not added_again
    if added_again:
        said = f"q.base_layer.weight has 4 × {PRODUCT} of a merged in, and b adds it once more"
        assert said in {row.because for row in found.findings}
