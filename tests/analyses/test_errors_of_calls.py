"""The error that each module's calls add, from two runs, and which of them stand apart."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare, fx_debug
from fxdebug.analyses.quantisation.errors_of_calls import Apart, CallError, apart, errors_of_calls, result_error
from fxdebug.analyses.quantisation.report import outstanding
from fxdebug.api import Comparison


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.twice = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.Linear(4, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.twice(self.twice(self.act(self.first(x))))
        return self.inner(x), x.sum()


@pytest.fixture(scope="module")
def compared() -> Comparison:
    """Two runs: in b the weights of two modules are larger."""
    torch.manual_seed(0)
    a = Net()
    b, x = copy.deepcopy(a), torch.randn(5, 4)
    with torch.no_grad():
        b.twice.weight *= 1.01
        b.inner[0].weight *= 0.9
    return compare(*(fx_debug(model, x, values="tensors") for model in (a, b)))


def test_in_a_run_what_went_in_is_taken_off_and_what_is_unchanged_left_out(compared: Comparison) -> None:
    twice, inner = errors_of_calls(compared, isolated=False)
    rows = {(row.path, number): row for number, row in enumerate(compared.rows) if row.op is None}
    errors = {name: [row for (path, _), row in rows.items() if path == name] for name in ("twice", "inner.0")}
    added = {name: max(row.measures.relative - row.error_in for row in found) for name, found in errors.items()}
    assert twice == CallError("twice", "twice", "Linear", added["twice"], 2, 2, (4, 4), False, False, False)
    assert inner == CallError("inner.0", "inner.0", "Linear", added["inner.0"], 1, 4, (3, 4), False, False, True)
    assert 0.0 < added["twice"] < 0.02 < 0.03 < added["inner.0"]


def test_calls_that_were_given_the_same_have_their_own_error(compared: Comparison) -> None:
    found = {one.path: one for one in errors_of_calls(compared, isolated=True)}
    assert list(found) == ["first", "act", "twice", "inner.0", "inner"]
    assert (found["first"].error, found["act"].error, found["act"].shape) == (0.0, 0.0, ())
    assert [path for path, one in found.items() if one.has_inner] == ["inner"]
    assert [path for path, one in found.items() if one.is_last] == ["inner.0", "inner"]


def test_the_error_of_a_result_is_that_of_its_tensors_not_of_scalars_beside_them(compared: Comparison) -> None:
    whole = next(row for row in compared.outputs if row.b is not None and row.b.value.shape == (5, 3))
    assert result_error(compared) == pytest.approx(whole.measures.relative)


def test_models_that_are_the_same_add_nothing_in_a_run() -> None:
    model, x = Net(), torch.ones(1, 4)
    same = compare(fx_debug(model, x), fx_debug(model, x))
    assert errors_of_calls(same, isolated=False) == [] and result_error(same) == 0.0


def of(*errors: float | None) -> list[CallError]:
    return [CallError(f"{at}", f"{at}", "Linear", one, 1, at, (), False, False, False) for at, one in enumerate(errors)]


def test_calls_stand_apart_by_ten_times_the_next_and_a_third_of_what_they_return() -> None:
    assert apart(of(0.5, 0.04, None, 0.02, 0.6, 0.0)) == Apart(("0", "4"), 0.5, 0.6, 2, 0.04)
    assert apart(of(0.3, 0.03)) == Apart(("0",), 0.3, 0.3, 1, 0.03)
    assert apart(of(0.3, 0.031)) is apart(of(0.29, 0.001)) is apart(of(0.5)) is apart([]) is None


@pytest.mark.parametrize(
    ("whole", "without", "among", "named"),
    [
        (1.0, {"a": 0.7, "b": 0.9, "c": 1.0}, 9, "a"),
        (1.0, {"a": 0.81, "b": 0.9, "c": 1.0}, 9, None),
        (1.0, {"a": 0.79, "b": 0.9, "c": 1.0}, 9, "a"),
        (1.0, {"a": 0.7, "b": 0.9, "c": 1.14}, 9, "a"),
        (1.0, {"a": 0.7, "b": 0.9, "c": 1.16}, 9, None),  # as much may be chance
        (1.0, {"a": 0.7, "b": 0.9}, None, None),  # two that add as much have a share of 0.29 each
        (1.0, {"a": 0.45, "b": 0.9}, None, "a"),
        (0.0, {"a": 0.0}, None, None),
        (None, {"a": 0.0}, None, None),
        (1.0, {}, None, None),
    ],
)
def test_one_module_is_worth_leaving_alone_where_it_makes_more_than_its_part_and_more_than_chance(
    whole: float | None, without: dict[str, float], among: int | None, named: str | None
) -> None:
    assert outstanding(whole, without, among) == named
