"""Second runs: random numbers that torch does not draw, and permutations, whose statistics are always the same."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fxdebug

BY_B = "a second run of b gives other numbers here"
NUMPY = f"{BY_B}: numpy's or Python's random numbers decide it, seed both runs alike"
DRAWN = "random numbers were drawn: seed both runs alike"
own = np.random.default_rng(0)
OWN = (
    "each run of b gives other numbers here, from one start too: a random generator of its own decides it, "
    "or state that is in no buffer and no attribute"
)


class Net(nn.Module):
    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.last = nn.Linear(8, 8), between, nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))


def given() -> Tensor:
    return torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("values", ["stats", "tensors"])
@pytest.mark.parametrize(
    ("between", "op", "because", "in_check"),
    [
        (lambda x: x * torch.from_numpy(np.random.rand(8).astype("f")), "mul", NUMPY, "numpy's or Python's random"),
        (lambda x: x[:, np.random.permutation(6)], "getitem", NUMPY, "numpy's or Python's random numbers decide it"),
        (lambda x: x[:, random.sample(range(6), 6)], "getitem", NUMPY, "numpy's or Python's random numbers decide it"),
        (lambda x: x * random.random(), "mul", NUMPY, "numpy's or Python's random numbers decide it"),
        (lambda x: x * torch.from_numpy(own.random(8).astype("f")), "mul", OWN, "a random generator of its own"),
        (lambda x: x[:, torch.randperm(6)], "randperm", DRAWN, "draws random numbers (randperm) in evaluation"),
    ],
    ids=["numpy", "a permutation of numpy", "a permutation of Python", "a number of Python", "its own", "randperm"],
)
def test_random_numbers_are_known_whatever_draws_them(
    between: Callable[[Tensor], Tensor], op: str, because: str, in_check: str, values: fxdebug.Keeping
) -> None:
    net = Net(between).eval()
    np.random.seed(3)
    random.seed(3)
    a, b = [fxdebug.fx_debug(net, given(), values=values) for _ in range(2)]
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    first = fxdebug.compare(a, b).first
    assert first is not None
    assert (first.op, first.kind, first.because) == (op, "random", because)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    (finding,) = fxdebug.check(net, given(), analyses=["structure"])
    assert (finding.rule, finding.severity) == ("random", "advice")
    assert in_check in finding.what


def test_operations_of_torch_that_are_not_known_to_draw_are_found_by_a_second_run() -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    (finding,) = fxdebug.check(Net(lambda x: attention(x, x, x)[0]).eval(), given(), analyses=["structure"])
    assert "torch's random numbers decide it" in finding.what


def test_another_order_with_the_same_statistics_is_no_equal_run() -> None:
    a, b = [fxdebug.fx_debug(Net(between), given()) for between in (torch.Tensor.contiguous, lambda x: x.flip(1))]
    found = fxdebug.compare(a, b)
    assert (found.verdict, [row.op for row in found.findings]) == ("different", ["flip"])
    assert found.notes[-1] == 'both models ran once more, to compare every element (values="tensors")'


def test_equal_runs_are_not_made_again() -> None:
    calls: list[int] = []

    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return x * 2

    net = Net(counted)
    a, b = [fxdebug.fx_debug(net, given()) for _ in range(2)]
    ran = len(calls)
    assert fxdebug.compare(a, b).equal
    assert len(calls) == ran


class Carrying(nn.Module):
    """A recurrent layer that begins with the state that the call before has left, in a buffer or an attribute."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.kind = nn.GRUCell(8, 8), kind
        if kind == "buffer":
            self.register_buffer("state", torch.zeros(0, 8), persistent=False)
        else:
            self.state = torch.zeros(0, 8)

    def forward(self, x: Tensor) -> Tensor:
        if self.state.shape[0] != len(x) or self.kind == "reset":
            self.state = x.new_zeros(len(x), 8)
        h = self.state
        for at in range(x.shape[1]):
            h = self.cell(x[:, at], h)
        self.state = h.detach()
        return h


@pytest.mark.parametrize(
    ("kind", "because"),
    [
        ("buffer", "b begins with state as a has left it, and a with another one"),
        ("attribute", "in b it is given state, which an earlier call has left, in a it is not"),
        ("reset", ""),
    ],
)
def test_state_that_the_run_before_has_left_is_told_by_its_name(kind: str, because: str) -> None:
    net = Carrying(kind).eval()
    a, b = [fxdebug.fx_debug(net, given(), values="tensors") for _ in range(2)]
    assert [row.because for row in fxdebug.compare(a, b).findings] == [because][: bool(because)]
    told = [finding.what for finding in fxdebug.check(net, given(), analyses=["structure"])]
    ends = ["it goes on from state, which the first call has left"][: bool(because)]
    assert [what.partition(": ")[2] for what in told] == ends
