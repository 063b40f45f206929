"""Operations that are written another way than they were meant: each is named by the way that repairs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models

Body = Callable[[nn.Module, Tensor], Tensor]


class Layer(nn.Module):
    """A layer between two projections, which computes what its function does."""

    def __init__(self, body: Body, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, 3)
        self.table = nn.Parameter(torch.randn(12, width))
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self, self.first(x)))  # type: ignore[no-any-return]


def grouped(x: Tensor, strided: bool) -> Tensor:
    """Return channels of which each of two groups has mean 0, the groups side by side or in turn."""
    if not strided:
        return F.group_norm(x.mT, 2).mT
    parts = x.reshape(*x.shape[:2], 4, 2)
    mean = parts.mean((1, 2), keepdim=True)
    return ((parts - mean) / (parts.var((1, 2), keepdim=True, correction=0) + 1e-5).sqrt()).reshape(x.shape)


def joined(x: Tensor) -> Tensor:
    """Sum up two halves of the channels, and join them as they lie."""
    return x.unflatten(-1, (2, 4)).transpose(1, 2).cumsum(2).reshape(x.shape)


def both_ways(x: Tensor, back: bool) -> Tensor:
    """Sum up to each step, and from it."""
    later = x.flip(1).cumsum(1)
    return x.cumsum(1) + (later.flip(1) if back else later)


def response(x: Tensor, alpha: float) -> Tensor:
    """Divide by the squares of channels around."""
    squares = F.pad(x.square(), (2, 2))
    around = torch.stack([squares[..., at : at + x.shape[-1]] for at in range(5)]).sum(0)
    return x / (1 + around * alpha) ** 0.75


KINDS: dict[str, tuple[Body, Body, tuple[str, str, str]]] = {
    "a number": (
        lambda self, x: F.local_response_norm(x.mT, 5, alpha=0.5).mT,
        lambda self, x: response(x, 0.5),
        ("mul", "0.5 in b, where a's values need 0.1", "mul with 0.1"),
    ),
    "a setting of a": (
        lambda self, x: torch.cat([x, x.std(1, keepdim=True)], 1),
        lambda self, x: torch.cat([x, (x - x.mean(1, keepdim=True)).square().mean(1, keepdim=True).sqrt()], 1),
        ("sqrt", "std of a has unbiased=True, where b's values need unbiased=False", "std with unbiased=False"),
    ),
    "rows of a table": (
        lambda self, x: x + F.embedding(torch.arange(x.shape[1]) + 2, self.table),
        lambda self, x: x + self.table[: x.shape[1]],
        ("getitem", "0:5 of dimension 0 in b, where a's values need 2:7", "getitem of 2:7"),
    ),
    "the groups of a norm": (
        lambda self, x: grouped(x, False),
        lambda self, x: grouped(x, True),
        ("reshape", "8 elements are split into 4 × 2 in b, where a's values need 2 × 4", "reshape with 2 × 4"),
    ),
    "dimensions that are joined": (
        lambda self, x: torch.cat([half.cumsum(1) for half in x.chunk(2, -1)], -1),
        lambda self, x: joined(x),
        (
            "reshape",
            "cat([•, •], -1) in a, reshape((2, 5, 8)) in b",
            "reshape with dimensions 1 and 2 exchanged before",
        ),
    ),
    "a mask": (
        lambda self, x: torch.softmax(x.mT.masked_fill(torch.arange(x.shape[1]) > 2, -9.0), -1).mT,
        lambda self, x: torch.softmax(torch.where(torch.arange(x.shape[1]) > 2, x.mT, -9.0), -1).mT,
        ("where", "the mask of where is inverted against that of a", "where with its mask inverted"),
    ),
    "a flip": (
        lambda self, x: both_ways(x, True),
        lambda self, x: both_ways(x, False),
        ("add", "operand 2 of add runs backwards along dimension -2, and not in a", "add with operand 2 flipped along"),
    ),
}


X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_that_repairs_an_operation_is_told(kind: str) -> None:
    one, other, (op, because, edit) = KINDS[kind]
    first = compare_models(Layer(one), Layer(other), X).first
    assert first is not None
    assert (first.op, first.because, first.proven) == (op, because, True)
    assert first.repair.startswith(edit)


def test_a_number_beyond_all_values_is_no_cause() -> None:
    """A bound that no value reaches repairs b whatever it is: the bound of each row is what differs."""

    def each(self: nn.Module, x: Tensor) -> Tensor:
        return torch.maximum(x, x.amax((1, 2), keepdim=True) - 8.0)

    def of_all(self: nn.Module, x: Tensor) -> Tensor:
        return torch.maximum(x, x.max() - 8.0)

    x = torch.cat([X[:1], X[1:] * 100])
    first = compare_models(Layer(each), Layer(of_all), x).first
    assert first is not None and "where a's values need" not in first.because


def test_what_writes_or_draws_is_not_varied() -> None:
    one, other = Layer(lambda self, x: F.relu(x)), Layer(lambda self, x: F.relu(x - 0.1, inplace=True))
    before = [weight.clone() for weight in other.parameters()]
    assert compare_models(one, other, X).findings
    assert all(torch.equal(old, new) for old, new in zip(before, other.parameters()))


class Norm(nn.Module):
    """A norm that keeps its weight, or how far it is from 1."""

    def __init__(self, from_one: bool, weight: Tensor) -> None:
        super().__init__()
        self.from_one, self.weight = from_one, nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        if not self.from_one:
            return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (1 + self.weight)


def test_weights_that_were_converted_twice_are_told_by_what_is_too_much() -> None:
    weights = [torch.rand(6, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    one = nn.Sequential(*(Norm(True, weight) for weight in weights), nn.Linear(6, 2))
    for too_much in (0.0, 1.0):
        other = nn.Sequential(*(Norm(False, weight + 1 + too_much) for weight in weights), one[3])
        rows = compare_models(one, other, X).findings
        told = [(row.where, row.because, row.proven) for row in rows]
        assert told == [("0/rms_norm", "the weight of rms_norm is 1 more than a's values need", True)] * bool(too_much)


def test_a_weight_without_dimensions_and_a_nested_tensor_are_left_alone() -> None:
    """What has no rows or no sizes cannot be varied, and the comparison says what it can."""

    class Scaled(nn.Module):
        def __init__(self, last: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.scale, self.last = nn.Parameter(torch.tensor(0.5)), last

        def forward(self, x: Tensor) -> Tensor:
            parts = torch.nested.as_nested_tensor([x[0], x[1, :3]], layout=torch.jagged)
            return self.last(torch.cat([part.sum(0) for part in (parts * self.scale).unbind()]))

    found = compare_models(Scaled(lambda x: x.sin() + x.roll(1)), Scaled(lambda x: (x.cos() * x).flip(0) / 3), X)
    assert found.findings and not any(row.proven and row.kind == "weights" for row in found.findings)
