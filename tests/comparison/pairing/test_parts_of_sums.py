"""A product over a part of what another one sums is no counterpart of it, though it has its bias."""

import torch
from torch import Tensor, nn

import fxdebug

WIDTH = 6


class Joined(nn.Module):
    """Joins two streams before one product; ``scale`` is that of the second stream."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right, self.out = nn.Linear(4, WIDTH), nn.Linear(4, WIDTH), nn.Linear(2 * WIDTH, 5)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.left(x).tanh(), self.right(x).tanh() * self.scale], -1))  # type: ignore[no-any-return]


class Apart(Joined):
    """Has a product for each of them, the first one with the bias."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(scale)
        first, last = self.out.weight.detach().split(WIDTH, 1)
        self.of_left, self.of_right = nn.Linear(WIDTH, 5), nn.Linear(WIDTH, 5, bias=False)
        with torch.no_grad():
            self.of_left.weight.copy_(first)
            self.of_right.weight.copy_(last)
            self.of_left.bias.copy_(self.out.bias)
        del self.out

    def forward(self, x: Tensor) -> Tensor:
        return self.of_left(self.left(x).tanh()) + self.of_right(self.right(x).tanh() * self.scale)  # type: ignore[no-any-return]


x = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))


def test_the_weights_of_the_parts_are_not_told_to_differ() -> None:
    for find in (
        lambda a, b: fxdebug.compare_models(a, b, x),
        lambda a, b: fxdebug.compare(fxdebug.fx_debug(a, x), fxdebug.fx_debug(b, x)),
    ):
        assert not find(Joined(), Apart()).findings
        told = [row.because for row in find(Joined(), Apart(0.7)).findings]
        assert told and not [because for because in told if "weight" in because]


def test_the_scale_of_a_part_is_told() -> None:
    first = fxdebug.compare_models(Joined(), Apart(0.7), x).first
    assert first is not None and first.op == "mul" and "0.7 in b" in first.because
