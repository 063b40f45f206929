"""Causes that ``compare`` tries with a budget, where both traces have their models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.api.comparison import Comparison
from support.watched import state_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.approximate, self.factor, self.rate, self.runs = "tanh", 1.0, 0.0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        y = self.down(F.gelu(self.up(self.norm(x)), approximate=self.approximate))
        return x + F.dropout(y if self.factor == 1.0 else y * self.factor, self.rate)


X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)) * 3


def pair(plant: Callable[[nn.Module], None]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    right = nn.Sequential(*[Block() for _ in range(3)]).eval()
    wrong = copy.deepcopy(right)
    plant(wrong)
    return right, wrong


def change(**attributes: object) -> Callable[[nn.Module], None]:
    return lambda model: [setattr(model[1], name, thing) for name, thing in attributes.items()] and None


def shuffled(model: nn.Module) -> None:
    model[1].up.weight.data = model[1].up.weight.data.flip(0)


def compared(models: tuple[nn.Module, nn.Module], budget: float = 30.0, **keeping: object) -> Comparison:
    a, b = [fxdebug.fx_debug(model, X, **({"values": "tensors"} | keeping)) for model in models]
    return fxdebug.compare(a, b, budget=budget)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (change(approximate="none"), "gelu with the settings of a"),
        (change(factor=1.5), "mul left out"),
        (shuffled, "linear with the weights of a"),
    ],
)
def test_the_edit_that_repairs_a_fault_is_proven(plant: Callable[[nn.Module], None], words: str) -> None:
    models = pair(plant)
    found, whole = compared(models), fxdebug.compare_models(*models, X)
    assert found.first is not None and found.first.proven and found.repaired
    assert found.first.repair == f"{words}: with this edit b returns what a returns"
    assert [row.repair for row in found.findings] == [row.repair for row in whole.findings]


def test_several_faults_are_repaired_in_turn() -> None:
    def both(model: nn.Module) -> None:
        model[1].approximate, model[2].factor = "none", 1.5

    found = compared(pair(both)).findings
    proof = "with this and 1 more edit b returns what a returns"
    assert [(row.path, row.proven, row.repair) for row in found] == [
        ("1", True, f"gelu with the settings of a: {proof}"),
        ("2", True, f"mul left out: {proof}"),
    ]


def turned(x: torch.Tensor) -> torch.Tensor:
    """Return what far more operations make of a tensor than may stand in each other's place."""
    for _ in range(6):
        x = x + x.flip(0).cos().cumsum(-1)
    return x


def test_of_faults_that_no_edits_repair_the_first_is_likely_and_the_place_of_the_next_is_told() -> None:
    def both(model: nn.Module) -> None:
        model[1].approximate = "none"
        model[2].forward = lambda x: turned(x)  # type: ignore[assignment]

    row = compared(pair(both)).findings[0]
    assert (row.path, row.proven) == ("1", False)
    assert row.repair.startswith("likely: tried with gelu with the settings of a, and b then differs first at 2/")


def test_without_a_budget_no_model_runs() -> None:
    models = pair(change(approximate="none"))
    found = compared(models, budget=0.0)
    assert found.first is not None and (found.first.proven, found.first.repair) == (False, "")
    assert [block.runs for model in models for block in model] == [1] * 6


def test_models_and_random_numbers_are_as_before() -> None:
    models = pair(change(approximate="none"))
    a, b = [fxdebug.fx_debug(model, X, values="tensors") for model in models]
    before, state = [state_of(model) for model in models], torch.get_rng_state()
    assert fxdebug.compare(a, b, budget=30.0).repaired
    assert [state_of(model) for model in models] == before and torch.equal(state, torch.get_rng_state())
    assert [block.runs for model in models for block in model] == [1] * 6


def test_what_draws_random_numbers_or_was_changed_since_is_not_tried_and_a_note_says_so() -> None:
    random = pair(change(rate=0.5, approximate="none"))
    assert not any(row.repair for row in compared(random).findings)
    models = pair(change(approximate="none"))
    a, b = [fxdebug.fx_debug(model, X, values="tensors") for model in models]
    models[1][1].down.bias.data += 1.0
    found = fxdebug.compare(a, b, budget=30.0)
    assert not any(row.repair for row in found.findings)
    assert found.notes[-1] == "not tried: run again, b returns something else than it did, or raises"


def test_a_model_that_raises_the_second_time_is_not_tried() -> None:
    models = pair(change(approximate="none"))
    a, b = [fxdebug.fx_debug(model, X, values="tensors") for model in models]
    models[0][2].norm = nn.Linear(3, 3)
    found = fxdebug.compare(a, b, budget=30.0)
    assert found.notes[-1] == "not tried: run again, a returns something else than it did, or raises"


def test_runs_that_kept_numbers_only_are_tried_as_well_where_their_inputs_are_small() -> None:
    found = compared(pair(change(approximate="none")), values="stats")
    assert found.first is not None and "gelu with the settings of a: with this edit" in found.first.repair


def test_runs_without_tensors_and_models_are_compared_as_ever() -> None:
    runs = [copy.copy(fxdebug.fx_debug(model, X)) for model in pair(change(approximate="none"))]
    found = fxdebug.compare(*runs, budget=30.0)
    assert found.first is not None and found.first.kind == "constant" and not found.first.repair


def test_causes_in_saved_runs_and_in_single_calls_are_tried_by_their_graphs(tmp_path: Path) -> None:
    models = pair(change(approximate="none"))
    a, b = [fxdebug.fx_debug(model, X, values="tensors", save=tmp_path / name) for model, name in zip(models, "ab")]
    runs = [block.runs for model in models for block in model]
    saved = fxdebug.compare(tmp_path / "a", tmp_path / "b", budget=30.0)
    calls = fxdebug.compare(a.find("1")[0], b.find("1")[0], budget=30.0)
    for found in (saved, calls):
        assert [(row.kind, row.proven, row.repair) for row in found.findings] == [
            ("constant", True, "gelu with the settings of a: with this edit b returns what a returns")
        ]
    assert [block.runs for model in models for block in model] == runs


def test_a_saved_run_that_drew_numbers_is_not_tried_and_draws_none_here(tmp_path: Path) -> None:
    for factor, name in ((1.0, "a"), (2.0, "b")):
        model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
        torch.nn.init.constant_(model[0].weight, factor)
        fxdebug.fx_debug(model, X, values="tensors", save=tmp_path / name)
    before = torch.get_rng_state()
    found = fxdebug.compare(tmp_path / "a", tmp_path / "b", budget=30.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(row.proven for row in found.findings)
    assert "not tried: run again, a returns something else than it did, or raises" in found.notes


def test_a_saved_run_whose_weights_are_not_at_hand_is_not_tried(tmp_path: Path) -> None:
    for model, name in zip(pair(change(approximate="none")), "ab"):
        fxdebug.fx_debug(model, X, values="tensors", save=tmp_path / name, weights=False)
    found = fxdebug.compare(tmp_path / "a", tmp_path / "b", budget=30.0)
    assert found.first is not None and (found.first.kind, found.first.repair) == ("constant", "")
    assert "not tried: run again, a returns something else than it did, or raises" in found.notes


def test_equal_runs_are_not_run_again() -> None:
    models = pair(lambda model: None)
    assert compared(models).equal and [block.runs for model in models for block in model] == [1] * 6


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda model: setattr(model[1].norm, "eps", 0.005), "eps=1e-05 in a, eps=0.005 in b"),
        (change(factor=1.01), "mul has no counterpart in"),
    ],
)
def test_what_two_dtypes_hide_is_told_in_float32_where_code_differs(
    plant: Callable[[nn.Module], None], words: str
) -> None:
    a, b = pair(plant)
    b = b.bfloat16()
    runs = [fxdebug.fx_debug(model, x / 10, values="tensors") for model, x in ((a, X), (b, X.bfloat16()))]
    before = state_of(b), torch.get_rng_state()
    found = fxdebug.compare(*runs)
    assert found.first is not None and words in found.first.because
    assert "told in float32, of copies of both models whose weights are rounded to bfloat16" in found.notes
    assert state_of(b) == before[0] and torch.equal(torch.get_rng_state(), before[1])


def test_equal_code_in_two_dtypes_runs_no_model_again() -> None:
    a, b = pair(lambda model: None)
    calls: list[int] = []
    b = b.bfloat16()
    runs = [fxdebug.fx_debug(a, X, values="tensors"), fxdebug.fx_debug(b, X.bfloat16(), values="tensors")]
    b.register_forward_hook(lambda *_: calls.append(1))
    assert fxdebug.compare(*runs).equal and not calls


def test_gates_that_are_exchanged_are_told_of_two_traces() -> None:
    class Gru(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wi, self.wh = nn.Linear(5, 18), nn.Linear(6, 18)

        def forward(self, x: Tensor) -> Tensor:
            state, steps = x.new_zeros(len(x), 6), []
            for t in range(x.shape[1]):
                (z, r, n), (u, v, m) = self.wi(x[:, t]).chunk(3, -1), self.wh(state).chunk(3, -1)
                update = torch.sigmoid(z + u)
                state = (1 - update) * torch.tanh(n + torch.sigmoid(r + v) * m) + update * state
                steps.append(state)
            return torch.stack(steps, 1)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(5, 6, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.gru(x)[0]

    torch.manual_seed(0)
    a, b = Own(), Gru()
    with torch.no_grad():
        for mine, name in ((b.wi.weight, "weight_ih_l0"), (b.wi.bias, "bias_ih_l0"), (b.wh.weight, "weight_hh_l0")):
            mine.copy_(getattr(a.gru, name))
        b.wh.bias.copy_(a.gru.bias_hh_l0)
    x = torch.randn(2, 4, 5)
    found = fxdebug.compare(*[fxdebug.fx_debug(model, x, values="tensors") for model in (a, b)], budget=30)
    assert found.first is not None and "the gates r and z are exchanged" in found.first.because and found.repaired
