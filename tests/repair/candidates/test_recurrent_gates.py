"""Recurrent layers with gates in another order: the gates are named, in code and in weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.comparison.result import Row, Side
from fxdebug.repair.candidates.recurrent_gates import told_of_gates
from fxdebug.repair.rerun.edited_runs import EditedRuns, RunAgain

BEFORE = "in b the reset gate r multiplies the state before the matrix of the new gate n, not after it"
X = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1))


class Theirs(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner: nn.GRU | nn.LSTM = (nn.GRU if kind == "gru" else nn.LSTM)(6, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.inner(x)[0])
        return result


class Own(Theirs):
    """The same layer step by step; ``how`` is the order in which it takes the gates, or another fault."""

    def __init__(self, kind: str, how: str = "") -> None:
        super().__init__(kind)
        self.how = how or ("rzn" if kind == "gru" else "ifgo")

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner
        state = cell = x.new_zeros(len(x), 8)
        results = []
        for t in range(x.shape[1]):
            given = F.linear(x[:, t], inner.weight_ih_l0, inner.bias_ih_l0)
            hidden = F.linear(state, inner.weight_hh_l0, inner.bias_hh_l0)
            if isinstance(inner, nn.GRU):
                order = self.how if len(self.how) == 3 else "rzn"
                one, other = (dict(zip(order, part.chunk(3, -1))) for part in (given, hidden))
                r, z = (torch.sigmoid(one[gate] + other[gate]) for gate in "rz")
                bias = inner.bias_hh_l0[16:] if self.how == "outside" else 0.0
                n = torch.tanh(one["n"] + bias + r * (other["n"] - bias))
                if self.how == "before":
                    n = torch.tanh(one["n"] + F.linear(r * state, inner.weight_hh_l0[16:], inner.bias_hh_l0[16:]))
                state = (1 - z) * n + z * state
            else:
                gates = dict(zip(self.how if len(self.how) == 4 else "ifgo", (given + hidden).chunk(4, -1)))
                cell = gates["f"].sigmoid() * cell + gates["i"].sigmoid() * gates["g"].tanh()
                state = gates["o"].sigmoid() * cell.tanh()
            results.append(state)
            if self.how == "stateless":
                state = cell = torch.zeros_like(state)
        result: Tensor = self.head(torch.stack(results, 1))
        return result


def first(a: nn.Module, b: nn.Module) -> str:
    row = fxdebug.compare_models(a, b, X).first
    assert row is not None
    return row.because


@pytest.mark.parametrize(
    ("kind", "how", "told"),
    [
        ("gru", "zrn", "in b the gates r and z are exchanged"),
        ("gru", "rnz", "in b the gates z and n are exchanged"),
        ("gru", "outside", "in b the bias of the new gate n stands outside of the product with the reset gate r"),
        (
            "gru",
            "before",
            "in b the reset gate r multiplies the state before the matrix of the new gate n, not after it",
        ),
        ("gru", "stateless", "in b every step begins with the first state: the state is not passed on"),
        ("lstm", "stateless", "in b every step begins with the first state: the state is not passed on"),
        ("lstm", "ifog", "in b the gates g and o are exchanged"),
        ("lstm", "figo", "in b the gates i and f are exchanged"),
    ],
)
def test_the_gates_that_code_takes_for_others_are_named_and_proven(kind: str, how: str, told: str) -> None:
    found = fxdebug.compare_models(Theirs(kind), Own(kind, how), X).first
    assert found is not None and found.because == f"{kind} in a; {told}" and found.proven
    assert f"{kind} of a computed like that: both models return the same" in found.repair
    assert first(Own(kind, how), Theirs(kind)) == f"{kind} in b; {told.replace('in b', 'in a')}"


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_same_layer_step_by_step_is_silent(kind: str) -> None:
    assert fxdebug.compare_models(Theirs(kind), Own(kind), X).equal


def test_another_difference_is_not_blamed_on_gates() -> None:
    port = Own("gru")
    with torch.no_grad():
        port.inner.weight_hh_l0[3] *= 2
    found = fxdebug.compare_models(Theirs("gru"), port, X)
    assert not found.equal and not any("gate" in row.because for row in found.findings)


def reordered(kind: str, order: Sequence[int]) -> nn.Module:
    model = Theirs(kind)
    with torch.no_grad():
        for weight in model.inner.parameters():
            blocks = weight.clone().chunk(len(order))
            weight.copy_(torch.cat([blocks[at] for at in order]))
    return model


@pytest.mark.parametrize(
    ("kind", "order", "told"),
    [
        ("gru", (1, 0, 2), "with the gates r and z exchanged"),
        ("lstm", (0, 2, 1, 3), "with the gates f and g exchanged"),
        ("gru", (2, 0, 1), "with the gates in the order n, r, z, and not r, z, n"),
    ],
)
def test_weights_whose_gates_stand_in_another_order_say_so(kind: str, order: Sequence[int], told: str) -> None:
    assert first(Theirs(kind), reordered(kind, order)) == f"inner.weight_ih_l0 is that of a {told}"


def test_blocks_of_rows_of_another_weight_are_told_as_rows() -> None:
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 2))
    other = copy.deepcopy(one)
    with torch.no_grad():
        for weight in other[0].parameters():
            a, b, c = weight.clone().chunk(3)
            weight.copy_(torch.cat([b, a, c]))
    assert first(one, other) == "0.weight is that of a with rows 0:8 and 8:16 exchanged"


def test_two_ports_that_take_gates_for_others_are_told_which_result_is_given() -> None:
    found = fxdebug.compare_models(Own("gru"), Own("gru", "zrn"), X, budget=60)
    assert [(row.op, row.kind, row.because, row.proven) for row in found.findings] == [
        ("chunk", "wiring", "results 1 and 2 of chunk are taken the other way round than in a", True)
    ]


def test_where_both_models_return_the_same_nothing_is_tried() -> None:
    model = Theirs("gru")
    same = fxdebug.compare_models(model, model, X)
    call = same.a.root
    side = Side(call.path, call, call.type, "gru", None, None, "Theirs#0/gru")
    row = Row("", op="gru", kind="values", b=side)
    runs = EditedRuns(*[RunAgain(same.a, lambda _: pytest.fail("it ran"), model)] * 2, same)
    assert told_of_gates([row], same, runs, 10.0) == [row]


class Swapped(Own):
    """Another matrix of its own between its states, in which two gates changed places after it was loaded."""

    def __init__(self) -> None:
        super().__init__("gru")
        inner = self.inner
        self.given, self.hidden = nn.Linear(6, 24), nn.Linear(8, 24)
        self.given.load_state_dict({"weight": inner.weight_ih_l0, "bias": inner.bias_ih_l0})
        self.hidden.load_state_dict({"weight": inner.weight_hh_l0.roll(5, 0), "bias": inner.bias_hh_l0.roll(5, 0)})
        del self.inner

    def forward(self, x: Tensor) -> Tensor:
        state, results = x.new_zeros(len(x), 8), []
        for t in range(x.shape[1]):
            (a, b, c), hidden = self.given(x[:, t]).chunk(3, -1), self.hidden(state).roll(-5, -1)
            e, d, f = hidden.chunk(3, -1)  # as if they stood in the order z, r, n
            gate, update = torch.sigmoid(a + d), torch.sigmoid(b + e)
            state = (1 - update) * torch.tanh(c + gate * f) + update * state
            results.append(state)
        result: Tensor = self.head(torch.stack(results, 1))
        return result


def test_gates_of_one_weight_alone_in_another_order_are_named() -> None:
    found = fxdebug.compare_models(Swapped(), Theirs("gru"), X).first
    assert found is not None and found.proven
    assert found.because == "gru in b; in a the gates r and z of weight_hh and bias_hh are exchanged"
