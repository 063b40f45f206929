"""Nothing is called missing that only makes up for what is wrong, and what is left over is told on either side."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, x: Tensor, y: Tensor, bias: float | Tensor = 0.0) -> Tensor:
        return F.softmax(self.q(x) @ self.k(y).mT + bias, -1) @ self.v(y)  # type: ignore[no-any-return]


def distances(rows: int, columns: int) -> Tensor:
    return -(torch.arange(rows)[:, None] - torch.arange(columns)).abs() * 0.25


class Decoder(nn.Module):
    """Attention to itself and to a memory, in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross = (nn.ModuleList([Attention() for _ in range(2)]) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        memory = x[:, :4] * 2
        for own, cross in zip(self.own, self.cross):
            x = x + own(x, x, distances(5, 5))
            x = x + cross(x, memory)
        return x


class Port(nn.Module):
    """The same with other code; ``cross_bias`` adds the distances in both."""

    def __init__(self, model: Decoder, *, cross_bias: bool) -> None:
        super().__init__()
        parts = [part for each in zip(model.own, model.cross) for part in each]
        self.qkv = nn.Parameter(torch.stack([torch.stack([p.q.weight, p.k.weight, p.v.weight]) for p in parts]))
        self.cross_bias = cross_bias

    def attend(self, weights: Tensor, x: Tensor, y: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (torch.einsum("btd,ed->bte", z, w) for z, w in zip((x, y, y), weights))
        scores = torch.einsum("bte,bse->bts", q, k)
        if bias is not None:
            scores = scores + bias
        return torch.einsum("bts,bse->bte", scores.softmax(-1), v)

    def forward(self, x: Tensor) -> Tensor:
        memory = x[:, :4] + x[:, :4]
        for at in range(2):
            x = self.attend(self.qkv[2 * at], x, x, distances(5, 5)) + x
            x = self.attend(self.qkv[2 * at + 1], x, memory, distances(5, 4) if self.cross_bias else None) + x
        return x


def test_an_addition_that_a_has_not_is_told_in_all_layers() -> None:
    torch.manual_seed(0)
    a = Decoder()
    first = compare_models(a, Port(a, cross_bias=True), X).first
    assert first is not None and (first.op, first.kind, first.proven) == ("add", "extra", True)
    assert first.because == "add has no counterpart in a"
    assert compare_models(a, Port(a, cross_bias=False), X).equal


class Packed(nn.Module):
    """A product with numbers that lie in pairs of words; ``order`` is that of the columns of the zero points."""

    def __init__(self, order: str) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        self.register_buffer("codes", torch.randint(0, 16, (8, 6), generator=generator).float())
        zeros, self.order = torch.randint(2, 14, (6,), generator=generator).float(), order
        lie = {"right": zeros.reshape(2, 3).t().flatten(), "mixed": zeros[torch.tensor([3, 1, 5, 0, 2, 4])]}
        self.register_buffer("zeros", lie.get(order, zeros))
        self.register_buffer("scales", torch.rand(6, generator=generator) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.order == "a":
            return x @ ((self.codes - self.zeros) * self.scales)  # type: ignore[operator]
        zeros = self.zeros.view(3, 2).t().reshape(6)  # type: ignore[operator]
        return (x @ self.codes - x.sum(-1, keepdim=True) * zeros) * self.scales  # type: ignore[operator]


@pytest.mark.parametrize("order", ["as it lies", "mixed"])
def test_a_product_with_a_counterpart_is_not_called_missing(order: str) -> None:
    first = compare_models(Packed("a"), Packed(order), X, budget=3.0).first
    assert first is not None and first.kind != "missing"
    assert compare_models(Packed("a"), Packed("right"), X).equal


class Scores(nn.Module):
    def __init__(self, *, leaky: bool) -> None:
        super().__init__()
        self.w, self.leaky = nn.Linear(8, 6), leaky

    def forward(self, x: Tensor) -> Tensor:
        scores = self.w(x)
        scores = F.leaky_relu(scores) if self.leaky else scores
        return scores.softmax(-1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("leaky", [True, False])
def test_an_activation_that_b_has_not_is_named_as_such(leaky: bool) -> None:
    torch.manual_seed(1)
    a, b = Scores(leaky=True), Scores(leaky=leaky)
    b.load_state_dict(a.state_dict())
    found = compare_models(a, b, X)
    if leaky:
        assert found.equal
    else:
        (row,) = found.findings
        assert (
            row.proven
            and row.because.startswith("leaky_relu of a (")
            and row.because.endswith("has no counterpart in b")
        )


class Norm(nn.Module):
    def __init__(self, over: int) -> None:
        super().__init__()
        self.over = over

    def forward(self, x: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, dim=self.over, keepdim=True, correction=0)
        return (x - mean) * (var + 1e-5).rsqrt()


def test_statistics_over_another_dimension_are_told() -> None:
    a, b = nn.InstanceNorm1d(5), Norm(1)
    first = compare_models(a, b, X).first
    assert first is not None and first.proven
    assert first.because == "dim=1 in b, where a's values need dim=2"
    assert compare_models(a, Norm(-1), X).equal
