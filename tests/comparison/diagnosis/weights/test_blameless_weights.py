"""A weight that is a's own is not blamed for code around it; elements that are equal by chance prove nothing."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.comparison.diagnosis.weights.weight_slices import Row, _matched


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.swapped = False

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one(x).view(2, 12, 4, 8).transpose(1, 2) for one in (self.q, self.k, self.v))
        if self.swapped:
            k, v = v, k
        mixed = (q @ k.transpose(-1, -2) * 8**-0.5).softmax(-1) @ v
        return x + self.o(mixed.transpose(1, 2).reshape(2, 12, 32))  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_key_and_value_that_are_exchanged_in_the_code_are_not_blamed_on_weights(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    right = nn.Sequential(*[Attention() for _ in range(3)])
    wrong = copy.deepcopy(right)
    wrong[1].swapped = True
    right, wrong, x = right.to(dtype).eval(), wrong.to(dtype).eval(), (torch.randn(2, 12, 32) * 3).to(dtype)
    for found in (
        fxdebug.compare_models(right, wrong, x),
        fxdebug.compare(*[fxdebug.fx_debug(one, x, values="tensors") for one in (right, wrong)]),
    ):
        assert found.first is not None
        assert (found.first.path, found.first.kind) == ("1", "wiring")


def test_of_rows_with_the_same_sum_the_one_in_the_usual_place_is_meant() -> None:
    own = [Row("own", "own.bias", place) for place in range(4)]
    other = [Row("other", "other.bias", place) for place in range(2)]
    pool = [(0.5, other[1]), *zip((0.5, 1.0, 2.0, 4.0), own), (2.0, other[0])]
    assert _matched([0.5, 1.0, 2.0, 4.0], pool) == tuple(own)


class Rotary(nn.Module):
    def __init__(self, neighbours: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.neighbours = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), neighbours

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[1])[:, None] / 10000 ** (torch.arange(0, 16, 2) / 16)
        cos, sin = angles.cos(), angles.sin()
        if self.neighbours:
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.turned(self.q(x)) @ self.turned(self.k(x)).transpose(-1, -2)
        return scores.softmax(-1) @ self.v(x)


def test_halves_for_neighbours_are_told_and_not_the_sine_and_cosine_after_them() -> None:
    x = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0)) * 2
    found = fxdebug.compare_models(Rotary(True), Rotary(False), x).findings
    how = "b turns halves of a head, a neighbours: put the even rows of each head before the odd ones"
    told = [(row.op, row.because) for row in found]
    assert told == [("chunk", f"rotary positions: {how} of q.weight and k.weight")]
