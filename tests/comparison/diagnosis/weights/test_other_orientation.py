"""A matrix that lies the other way round than its product takes it, or whose rows a port did not reorder, is told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare_models


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.leave = nn.Linear(12, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.enter(x.flatten(1)).relu())


class Kernels(nn.Module):
    """The same with matrices as inputs × outputs; ``last``: pictures come with their channels last."""

    def __init__(self, original: Layers, *, last: bool = False, turned: bool = True) -> None:
        super().__init__()
        self.last = last
        self.first = nn.Parameter(original.enter.weight.detach().t().clone())
        own = original.leave.weight.detach()
        self.second = nn.Parameter(own.t().clone() if turned else own.clone())
        self.biases = nn.ParameterList([original.enter.bias.detach().clone(), original.leave.bias.detach().clone()])

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1) if self.last else x
        x = (x.flatten(1) @ self.first + self.biases[0]).relu()
        return torch.matmul(x, self.second) + self.biases[1]


X = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("port", "kind", "because"),
    [
        (
            {"turned": False},
            "weights",
            "second lies as leave.weight of a does: linear takes it the other way round than matmul",
        ),
        ({"last": True}, "values", "what matmul is given has the numbers of a in another order, and first does not"),
    ],
)
def test_the_layout_of_a_matrix_is_told(port: dict[str, bool], kind: str, because: str) -> None:
    model = Layers()
    with torch.no_grad():
        assert compare_models(model, Kernels(model), X).findings == ()
        found = compare_models(model, Kernels(model, **port), X, budget=0)
    assert [(row.op, row.kind, row.because) for row in found.findings] == [("matmul", kind, because)]


def test_rows_of_a_transposed_matrix_in_another_order_are_told() -> None:
    model = Layers()
    port = Kernels(model)
    with torch.no_grad():
        port.first.copy_(port.first.roll(1, 0))
        found = compare_models(model, port, X, budget=0)
    assert found.first is not None and found.first.kind == "weights"
    assert found.first.because == "the rows of first are those of enter.weight of a, transposed, in another order"
