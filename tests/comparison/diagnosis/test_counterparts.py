"""Steps that have a counterpart after all are not told as missing or extra: without effect, or in another place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

Body = Callable[["Layer", torch.Tensor], torch.Tensor]


class Layer(nn.Module):
    def __init__(self, body: Body, bias: float) -> None:
        super().__init__()
        self.body = body
        self.up, self.down, self.norm = nn.Linear(6, 6), nn.Linear(6, 6), nn.LayerNorm(6)
        self.bias = nn.Parameter(torch.arange(6.0) * bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


def told(a: Body, b: Body, biases: tuple[float, float] = (1.0, 1.0)) -> tuple[str | None, str | None, str]:
    models = []
    for body, bias in zip((a, b), biases):
        torch.manual_seed(0)
        models.append(Layer(body, bias))
    with torch.no_grad():
        first = fxdebug.compare_models(*models, torch.randn(3, 6)).first
    assert first is not None
    return first.op, first.kind, first.because


def _put_together(x: torch.Tensor, *starts: int) -> torch.Tensor:
    return torch.cat([x[:, start : start + 3] for start in starts], dim=-1)


MOVED: dict[str, tuple[Body, Body, tuple[str, str, str]]] = {
    "an operation and a module": (
        lambda m, x: m.down(F.softplus(m.up(x))),
        lambda m, x: m.down(m.up(F.softplus(x))),
        ("softplus", "wiring", "softplus stands before linear in b, where a's values need it behind"),
    ),
}

PARTS: dict[str, tuple[Body, Body, tuple[str, str, str]]] = {
    "a part of another result": (
        lambda m, x: m.down(m.up(x)[:, 0:3].sin() * m.norm(x)[:, 0:3] @ torch.ones(3, 6)),
        lambda m, x: m.down(m.up(x)[:, 3:6].sin() * m.norm(x)[:, 0:3] @ torch.ones(3, 6)),
        ("getitem", "constant", "(:, 0:3) in a, (:, 3:6) in b"),
    ),
}

OTHERS: dict[str, tuple[Body, Body, tuple[str, str, str]]] = {
    "ones for zeros": (
        lambda m, x: m.down(torch.zeros_like(x) + m.up(x)),
        lambda m, x: m.down(torch.ones_like(x) + m.up(x)),
        ("ones_like", "constant", "zeros_like in a, ones_like in b"),
    ),
    "difference for sum": (
        lambda m, x: m.down(m.up(x) + x),
        lambda m, x: m.down(m.up(x) - x),
        ("sub", "values", "add in a, sub in b"),
    ),
    "quotient for product": (
        lambda m, x: m.down(m.up(x) * x),
        lambda m, x: m.down(m.up(x) / x),
        ("div", "values", "mul in a, div in b"),
    ),
    "an operation more": (
        lambda m, x: m.down(F.gelu(m.up(x))),
        lambda m, x: m.down(torch.tanh(F.gelu(m.up(x)))),
        ("tanh", "extra", "tanh has no counterpart in a"),
    ),
    "a cast at the end": (
        lambda m, x: m.up(x).sin(),
        lambda m, x: m.up(x).sin().bfloat16().float(),
        ("bfloat16", "dtype", "float32 becomes bfloat16"),
    ),
    "parts in another order": (
        lambda m, x: m.down(_put_together(m.up(x), 0, 3)),
        lambda m, x: m.down(_put_together(m.up(x), 3, 0)),
        ("cat", "wiring", "cat is given the parts of a value in another order"),
    ),
}


@pytest.mark.parametrize("name", [*OTHERS, *PARTS])
def test_an_operation_that_does_something_else_is_named_with_both_sides(name: str) -> None:
    a, b, expected = (OTHERS | PARTS)[name]
    assert told(a, b) == expected


@pytest.mark.parametrize("name", MOVED)
def test_two_operations_exchanged_are_not_told_as_missing(name: str) -> None:
    a, b, expected = MOVED[name]
    assert told(a, b) == expected


def test_a_bias_of_zeros_that_is_added_is_named() -> None:
    def body(m: Layer, x: torch.Tensor) -> torch.Tensor:
        return m.down(torch.tanh(m.up(x) + m.bias))

    assert told(body, body, (1.0, 0.0)) == ("add", "weights", "bias is zero, that of a is not")


class OneByOne(nn.Module):
    """Adds what its experts return, by the shares of the three largest scores among all."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.experts = nn.Linear(6, 8), nn.ModuleList([nn.Linear(6, 6, bias=False) for _ in range(8)])

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.score(x).softmax(-1).topk(3, -1)
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            total = total.index_add(0, row, expert(x[row]).tanh() * shares[row, place, None])
        return total


class AtOnce(nn.Module):
    """The same with one weight for all experts; ``among_chosen``: the shares are those among the three chosen."""

    def __init__(self, other: OneByOne, among_chosen: bool) -> None:
        super().__init__()
        self.score, self.among_chosen = other.score, among_chosen
        self.ways = nn.Parameter(torch.stack([each.weight for each in other.experts]).detach())  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x) if self.among_chosen else self.score(x).softmax(-1)
        chosen = scores.argsort(-1, descending=True)[..., :3]
        shares = torch.take_along_dim(scores, chosen, -1)
        shares = shares.softmax(-1) if self.among_chosen else shares
        mixed = torch.zeros_like(scores).scatter(-1, chosen, shares)
        return torch.einsum("neo,ne->no", torch.einsum("ni,eoi->neo", x, self.ways).tanh(), mixed)


@pytest.mark.parametrize("among_chosen", [False, True])
def test_a_softmax_on_the_other_side_of_a_choice_that_is_written_otherwise_is_told(among_chosen: bool) -> None:
    torch.manual_seed(0)
    one, last = OneByOne(), nn.Linear(6, 4)
    a, b = nn.Sequential(nn.Linear(6, 6), one, last), nn.Sequential(nn.Linear(6, 6), AtOnce(one, among_chosen), last)
    b[0].load_state_dict(a[0].state_dict())
    row = fxdebug.compare_models(a, b, torch.randn(9, 6, generator=torch.Generator().manual_seed(0))).first
    told = "softmax before topk in a, softmax after argsort in b" if among_chosen else None
    assert (row and row.because) == told


class Placed(nn.Module):
    def __init__(self, uses_table: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.table, self.uses_table = nn.Linear(6, 6), nn.Parameter(torch.randn(1, 5, 6)), uses_table

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x).tanh()
        return (x + (self.table if self.uses_table else x.clone())).relu()


def test_a_weight_that_only_one_run_uses_is_told_with_what_the_other_one_takes() -> None:
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    found = fxdebug.compare_models(Placed(True), Placed(False), x).findings
    assert [(row.op, row.kind, row.because) for row in found] == [
        ("add", "values", "add is given table in a, no weight in b")  # a region of a was tried
    ]
    back = fxdebug.compare_models(Placed(False), Placed(True), x).findings
    assert [row.because for row in back] == ["it is given the result of tanh in a, table in b"]
