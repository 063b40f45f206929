"""Indices that models compute by comparing: near a tie rounding decides, and experts are given other rows."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison
from fxdebug.comparison.tolerance import least_share_between
from support import routed, sweep

WAYS = ("stats", "tensors", "models")
PRECISIONS = {
    "float32": (torch.float32, torch.float32),
    "float64 and float32": (torch.float64, torch.float32),
    "float32 and float64": (torch.float32, torch.float64),
}


def compared(a: nn.Module, b: nn.Module, x: torch.Tensor, way: str, precision: str = "float32") -> Comparison:
    one, other = PRECISIONS[precision]
    a, b = copy.deepcopy(a).to(one), copy.deepcopy(b).to(other)
    with torch.no_grad():
        if way == "models":
            return compare_models(a, b, x.to(one), inputs_b=x.to(other))
        return compare(*(fx_debug(m, x.to(dtype), values=way) for m, dtype in ((a, one), (b, other))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pair", "precision", "way"),
    sweep.spread(itertools.product(routed.IMPLEMENTATIONS, repeat=2), PRECISIONS, WAYS, rounds=2),
)
def test_experts_that_are_given_their_rows_in_another_way_are_equal(pair, way, precision):
    a, b = pair
    for ties in (False, True):
        models = routed.Routed(a, ties=ties), routed.Routed(b, ties=ties)
        found = compared(*models, routed.rows(), way, precision)
        assert (found.findings, found.verdict) == ((), "equal")


@pytest.mark.parametrize(
    ("offset", "pair", "precision"),
    sweep.spread(
        [8.0, 24.0, 32.0, 64.0], [("loop", "grouped"), ("grouped", "loop"), ("grouped", "dense")], PRECISIONS, rounds=3
    ),
)
def test_rounding_of_large_numbers_in_float32_is_no_finding_of_another_implementation(pair, precision, offset):
    a, b = pair
    models = routed.Routed(a, offset=offset), routed.Routed(b, offset=offset)
    for way in ("stats", "tensors"):
        found = compared(*models, routed.rows(), way, precision)
        assert (found.findings, found.verdict) == ((), "equal")


TWICE = torch.randn(4, 10, routed.WIDTH, generator=torch.Generator().manual_seed(5))
TWICE[:, 3], TWICE[:, 5] = TWICE[:, 1], TWICE[:, 4]  # rows with one score
CHOOSING = {
    **{f"back from {a} and {b}": (routed.SortedAndBack(a), routed.SortedAndBack(b)) for a, b in [
        ("argsort", "argsort"), ("argsort", "sort"), ("sort", "topk"), ("topk", "argsort")]},
    **{f"nearest by {a} and {b}": (routed.Codebook(a), routed.Codebook(b)) for a, b in [
        ("norm", "norm"), ("norm", "product"), ("product", "max"), ("max", "norm")]},
    "the best of twins": (routed.BestOfTwins(), routed.BestOfTwins()),
}  # fmt: skip


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHOOSING)
def test_choices_among_equals_are_no_findings(name, way, precision):
    found = compared(*CHOOSING[name], TWICE, way, precision)
    assert (found.findings, found.verdict) == ((), "equal")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("implementation", ["loop", "dense", "grouped"])
def test_the_worst_choice_is_found_all_the_same(implementation, way):
    class Worst(routed.Routed):
        def forward(self, x):
            scores = self.gate(x).softmax(-1)
            weights, chosen = scores.topk(routed.CHOSEN, dim=-1, largest=False)
            weights = weights / weights.sum(-1, keepdim=True)
            return self.head(getattr(self, self.way)(x, chosen, weights, scores))

    found = compared(routed.Routed(implementation), Worst(implementation), routed.rows(), way)
    assert found.first is not None
    assert (found.first.path, found.first.op) == ("", "topk")


@pytest.mark.parametrize("way", ["tensors", "models"])
@pytest.mark.parametrize("implementation", ["loop", "dense", "grouped"])
def test_an_expert_with_other_weights_is_named(implementation, way):
    a, b = routed.Routed("loop"), routed.Routed(implementation)
    with torch.no_grad():
        b.experts[2].weight[5] += 0.5
    found = compared(a, b, routed.rows(), way)
    assert found.first is not None
    assert (found.first.path, found.first.op, found.first.kind) == ("experts.2", "linear", "weights")


@pytest.mark.parametrize("implementation", ["loop", "dense", "grouped"])
def test_rounding_that_decides_for_another_expert_is_told_where_it_changes_the_result(implementation):
    a, b = (routed.Routed(implementation) for _ in range(2))
    with torch.no_grad():  # the router can hardly tell two experts apart, and they are not alike
        for model in (a, b):
            model.gate.weight[3] = model.gate.weight[1] * (1 + 1e-7)
        x = routed.rows(400)
        found = compare(*(fx_debug(m, x.to(d), values="tensors") for m, d in (
            (a, torch.float32), (b.bfloat16(), torch.bfloat16))))  # fmt: skip
    assert found.first is not None and not found.equal
    assert (found.first.op, found.first.kind) == ("topk", "values")
    assert "so close that rounding decides" in found.first.because


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], 0.0),
        ([0, 1, 2, 3], [3, 2, 1, 0], 0.0),
        ([0, 1, 2, 3], [0, 1, 2, 4], 0.25),
        ([5, 1, 1, 1], [1, 1, 1, 1], 0.25),
        ([7, 7, 7, 7], [9, 9, 9, 9], 1.0),
        ([False, False, True, True], [False, True, True, True], 0.25),
        ([-2, 2, -2, 2], [0, 0, 0, 0], 1.0),
    ],
)
def test_statistics_of_integers_say_how_many_differ_at_least(a, b, share):
    one, other = (fx_debug(nn.Identity(), torch.tensor(x)).values[0].stats for x in (a, b))
    assert least_share_between(one, other) == pytest.approx(share)
    assert share <= sum(x != y for x, y in zip(a, b)) / len(a)


class Skipping(routed.Routed):
    """Experts that nobody chose are not called; ``exchanged``: the weights are taken for the choice."""

    def __init__(self, *, exchanged: bool) -> None:
        super().__init__("loop")
        self.exchanged = exchanged

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(routed.CHOSEN, dim=-1)
        if self.exchanged:
            weights, chosen = chosen, weights
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            if row.numel():
                mixed = mixed.index_add(0, row, expert(x[row]) * weights[row, place, None])
        return self.head(mixed + x)


@pytest.mark.parametrize("way", WAYS)
def test_a_branch_that_calls_no_expert_is_told_by_the_comparison_that_decides_it(way):
    found = compared(Skipping(exchanged=False), Skipping(exchanged=True), routed.rows(), way)
    assert found.first is not None
    assert (found.first.path, found.first.op, found.first.kind) == ("", "eq", "wiring")
    assert (
        found.first.because
        == "it is given the result of Skipping/topk(2, dim=-1)[1] in a, of Skipping/topk(2, dim=-1)[0] in b"
    )
    assert compared(Skipping(exchanged=True), Skipping(exchanged=True), routed.rows(), way).findings == ()
