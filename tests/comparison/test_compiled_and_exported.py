"""A model against the same one exported, scripted or traced: what was recorded of it is compared, the rest is said."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison

IDS = torch.arange(14).reshape(2, 7)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.up, self.down, self.head = nn.Linear(16, 64), nn.Linear(64, 16), nn.Linear(16, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        return self.head(x + self.down(F.gelu(self.up(self.norm(x)))))


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def damaged() -> Net:
    model = copy.deepcopy(net())
    with torch.no_grad():
        model.up.weight[3, 5] += 1.0
    return model


def scripted(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(model)  # type: ignore[no-any-return]


def exported(model: nn.Module) -> nn.Module:
    return torch.export.export(model, (IDS,)).module()


def decomposed(model: nn.Module) -> nn.Module:
    return torch.export.export(model, (IDS,)).run_decompositions().module()


def _by_runs(a: nn.Module, b: nn.Module) -> Comparison:
    return compare(fx_debug(a, IDS), fx_debug(b, IDS))


WAYS: dict[str, Callable[[nn.Module, nn.Module], Comparison]] = {
    "runs": _by_runs,
    "models": lambda a, b: compare_models(a, b, IDS),
}
MADE: dict[str, Callable[[nn.Module], Any]] = {"exported": exported, "decomposed": decomposed, "scripted": scripted}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MADE)
def test_the_same_model_is_equal(name: str, way: str) -> None:
    with torch.no_grad():
        found = WAYS[way](net(), MADE[name](net()))
    assert (found.verdict, found.findings) == ("equal", ())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "op"), [("exported", "linear.default"), ("decomposed", "addmm.default")])
def test_a_weight_of_an_exported_program_is_named_with_its_operation(name: str, op: str, way: str) -> None:
    with torch.no_grad():
        first = WAYS[way](net(), MADE[name](damaged())).first
    assert first is not None
    assert (first.kind, first.op, first.because) == ("weights", op, "row 3 of up.weight differs from that of a")


@pytest.mark.parametrize("way", WAYS)
def test_of_code_without_recorded_operations_the_weight_that_differs_is_named(way: str) -> None:
    with torch.no_grad():
        first = WAYS[way](net(), scripted(damaged())).first
        other = WAYS[way](scripted(net()), damaged()).first
    assert first is not None and other is not None
    assert (first.path, first.kind, first.because) == ("", "weights", "up.weight differs from up.weight of a")
    assert (other.path, other.kind, other.because) == ("up", "weights", "up.weight differs from up.weight of a")


def test_where_no_weight_differs_it_is_said_that_nothing_was_recorded() -> None:
    model = net()
    model.norm.eps = 0.5
    with torch.no_grad():
        found = _by_runs(net(), scripted(model))
    assert [(row.path, row.kind, row.because) for row in found.findings] == [
        ("", "values", "no operation of b was recorded: nothing says since when what is returned differs")
    ]


def test_a_weight_without_effect_on_these_inputs_is_a_note_and_a_finding_of_a_strict_comparison() -> None:
    model = net()
    with torch.no_grad():
        model.up.weight[3] += 1.0  # what a norm returns has the sum zero
        runs = fx_debug(net(), IDS), fx_debug(model, IDS)
        found, strict = compare(*runs), compare(*runs, strict=True)
    text = "up.weight holds other numbers than that of a"
    assert (found.verdict, found.notes) == (
        "equal",
        (f"up, linear: {text}; its result does not show it, within tolerance",),
    )
    assert [(row.path, row.kind, row.because) for row in strict.findings] == [("up", "weights", text)]
