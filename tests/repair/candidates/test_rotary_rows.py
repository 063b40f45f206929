"""Rotary positions that turn neighbours or halves, with rows of queries and keys that fit the other ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models

HEADS, HEAD = 2, 6
WIDTH = HEADS * HEAD


class Attention(nn.Module):
    def __init__(self, neighbours: bool, fused: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.neighbours, self.fused = neighbours, fused

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[2]).float(), 10.0 ** -torch.arange(0, 1, 2 / HEAD))
        if self.neighbours:
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
        one, other = x.chunk(2, -1)
        return x * cos + torch.cat([-other, one], -1) * sin

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for each in (self.q, self.k, self.v))
        q, k = self.turned(q), self.turned(k)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.mT * HEAD**-0.5).softmax(-1) @ v
        return x + self.o(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def model(neighbours: bool, fused: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Attention(neighbours, fused) for _ in range(2)])


def fit(port: nn.Module, neighbours: bool) -> None:
    with torch.no_grad():
        for layer in port:
            for weight in (layer.q.weight, layer.k.weight):
                halves = (HEADS, 2, HEAD // 2) if neighbours else (HEADS, HEAD // 2, 2)
                weight.copy_(weight.unflatten(0, halves).transpose(1, 2).flatten(0, 2))


def told(neighbours: bool, fused: bool, fits: bool, spoilt: bool = False) -> list[tuple[str, str, bool]]:
    one, port = model(not neighbours, fused), model(neighbours, not fused)
    if fits:
        fit(port, neighbours)
    if spoilt:
        with torch.no_grad():
            port[1].o.weight.mul_(2)  # type: ignore[operator,union-attr]
    found = compare_models(one, port, torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0)))
    return [(row.path, row.because, row.proven) for row in found.findings]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("neighbours", [True, False])
def test_rows_that_do_not_fit_what_is_turned_together_are_named(neighbours: bool, fused: bool) -> None:
    how = (
        "b turns neighbours, a halves of a head: interleave the rows of each head"
        if neighbours
        else "b turns halves of a head, a neighbours: put the even rows of each head before the odd ones"
    )
    because = f"rotary positions: {how} of 0.q.weight and 0.k.weight, and of 2 more"
    assert told(neighbours, fused, fits=False) == [("0", because, True)]
    assert told(neighbours, fused, fits=True) == []


def test_rows_are_not_told_beside_another_fault() -> None:
    assert not any("rotary" in because for _, because, _ in told(True, True, fits=False, spoilt=True))
