"""Edits where b begins to lack what a has: whatever is paired, and whatever each side writes out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.repair.candidates.variations.made_from_results import (
    known_factors,
    left_out,
    made_from_results,
    passed_through,
)
from fxdebug.repair.rerun.lost_values import LostValues
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.rerun.replayed_run import KeptOperations

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
HALF = Ran(torch.mul, (X, 0.5), {}, X * 0.5)


def lost(*values: Tensor) -> LostValues:
    """Return the values of a run that has some, against one that has half of X."""
    a, b = KeptOperations(), KeptOperations()
    for value in values:
        a.keep((0, "mul"), Ran(torch.mul, (X, 1), {}, value))
    b.keep((0, "mul"), HALF)
    return LostValues(a, b)


def test_a_result_is_made_a_value_of_a_by_a_factor_a_term_or_a_function() -> None:
    told = [way.because for way in made_from_results(lost(X * 0.1, X * 0.5 + 3), "mul", HALF)]
    assert told == [
        "what {op} returns is 5 times what a's values need",
        "what {op} returns is 3 less than a's values need",
    ]
    (way,) = passed_through(lost((X * 0.5).tanh()), "mul", HALF)
    assert way.because == "what {op} returns is not passed through tanh in b, as a's values are"
    assert torch.equal(way.change(HALF), (X * 0.5).tanh())


def test_values_of_one_mean_and_size_are_not_the_same_for_it() -> None:
    """A norm gives all rows the same mean and size: their elements tell them apart."""
    normed, other = (F.layer_norm(x, (24,)) for x in (X.reshape(-1), X.square().reshape(-1)))
    a, b = KeptOperations(), KeptOperations()
    for kept, value in ((a, normed), (b, other)):
        kept.keep((0, "layer_norm"), Ran(F.layer_norm, (X.reshape(-1), (24,)), {}, value))
    assert LostValues(a, b).has(normed) and LostValues(a, b).begins(b) == [0]
    assert not list(made_from_results(lost(X.square()), "mul", HALF))
    assert not list(passed_through(lost(X.square().square()), "mul", HALF))


def test_an_operation_is_left_out_and_a_product_of_tensors_scaled() -> None:
    assert [way.because for way in left_out("mul", HALF)] == ["{op} has no counterpart in a"]
    product = Ran(torch.mul, (X, X), {}, X * X)
    assert any(way.edit == "{op} with its result times 0.31831" for way in known_factors("mul", product))
    assert not list(known_factors("mul", HALF))  # its number is tried with those of a


class Net(nn.Module):
    """A layer and what its function does with its buffers."""

    def __init__(self, body: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.rows = nn.Parameter(torch.randn(3, 8))
        self.register_buffer("mean", torch.rand(8) + 1)
        self.register_buffer("variance", torch.rand(8) + 1)
        self.register_buffer("octaves", 2.0 ** torch.arange(2))
        self.register_buffer("turns", torch.pi * 2.0 ** torch.arange(2))
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self, self.first(x)))  # type: ignore[no-any-return]


def crossed(self: nn.Module, x: Tensor, numbers: tuple[int, int, int]) -> Tensor:
    start = x
    for number in numbers:
        x = start * (x * self.rows[number]).sum(-1, keepdim=True) + x
    return x


def crossed_by_products(self: nn.Module, x: Tensor) -> Tensor:
    start = x
    for row in self.rows.unbind():
        x = start * (x @ row[:, None]) + x
    return x


def normed(self: nn.Module, x: Tensor, kept: bool) -> Tensor:
    shift, scale = (self.mean, self.variance) if kept else (self.variance, self.mean)
    return (x - shift) / (scale + 1e-5).sqrt()


def waves(self: nn.Module, x: Tensor, scales: Tensor) -> Tensor:
    angles = x.unsqueeze(-1) * scales
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-3)[..., :8].contiguous()


def waves_one_by_one(self: nn.Module, x: Tensor) -> Tensor:
    parts = [fn(x * scale) for scale in (1.0, 2.0) for fn in (torch.sin, torch.cos)]
    return torch.stack(parts, -1).flatten(-2)[..., :8]


def shared(self: nn.Module, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    parts = x.unflatten(-1, (2, 4))
    return (parts / (parts.square().sum(dims, keepdim=True).sqrt() + 1)).flatten(-2)


FAULTS = {
    "dimensions of a sum": (
        lambda self, x: (x.T / (torch.linalg.vector_norm(x, dim=1) + 1)).T,
        lambda self, x: shared(self, x, (2,)),
        "dim=(2,) in b, where a's values need dim=(1, 2)",
    ),
    "items of a stack": (
        crossed_by_products,
        lambda self, x: crossed(self, x, (0, 0, 0)),
        "getitem takes item 0 at all 3 places of this line in b, where a's values need items 0 to 2",
    ),
    "two buffers": (
        lambda self, x: F.batch_norm(x, self.mean, self.variance),
        lambda self, x: normed(self, x, False),
        "variance and mean are taken for each other: variance is where mean should be in b, and the reverse",
    ),
    "a factor": (
        waves_one_by_one,
        lambda self, x: waves(self, x, self.turns),
        "what mul returns is 3.14159 times what a's values need",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_wrong_is_told_where_no_operation_faces_another(kind: str) -> None:
    one, other, because = FAULTS[kind]
    first = compare_models(Net(one).eval(), Net(other).eval(), X).first
    assert first is not None and (first.because, first.proven) == (because, True)


def test_the_same_written_another_way_is_no_fault() -> None:
    for one, other in (
        (lambda self, x: F.batch_norm(x, self.mean, self.variance), lambda self, x: normed(self, x, True)),
        (waves_one_by_one, lambda self, x: waves(self, x, self.octaves)),
    ):
        assert not compare_models(Net(one).eval(), Net(other).eval(), X).findings
