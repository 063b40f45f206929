"""Findings where the constants of an operation differ: its arguments besides tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug import fx_debug

Forward = Callable[[Tensor], Tensor]


class Only(nn.Module):
    """One function as a model."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def first(a: nn.Module, b: nn.Module, x: Tensor, values: str = "tensors") -> Any:
    with torch.no_grad():
        return fxdebug.compare(fx_debug(a, x, values=values), fx_debug(b, x, values=values)).first


def table() -> Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def resized(**how: Any) -> Forward:
    return lambda x: F.interpolate(x[None, None], mode="bilinear", **how)


CASES: dict[str, tuple[str, Forward, Forward, str]] = {
    "softmax, a zero": ("softmax", lambda x: x.softmax(0), lambda x: x.softmax(-1), "dim=0 in a, dim=-1 in b"),
    "softmax, by name in b": (
        "softmax", lambda x: x.softmax(0), lambda x: F.softmax(x, dim=-1), "dim=0 in a, dim=-1 in b",
    ),
    "masked_fill": (
        "masked_fill", lambda x: x.masked_fill(x > 0, 0), lambda x: x.masked_fill(x > 0, 1),
        "value=0 in a, value=1 in b",
    ),
    "gt": ("gt", lambda x: (x > 0).float(), lambda x: (x > 0.3).float(), "0 in a, 0.3 in b"),
    "hardtanh": (
        "hardtanh", lambda x: F.hardtanh(x, 0, 1), lambda x: F.hardtanh(x, -1, 1),
        "min_val=0 in a, min_val=-1 in b",
    ),
    "clamp, a ReLU": ("clamp", lambda x: x.clamp(min=0), lambda x: x.clamp(min=-1), "min=0 in a, min=-1 in b"),
    "clamp, from above": ("clamp", lambda x: x.clamp(max=0), lambda x: x.clamp(max=1), "max=0 in a, max=1 in b"),
    "interpolate": (
        "interpolate", resized(scale_factor=2, align_corners=False), resized(size=(8, 16), align_corners=True),
        "align_corners=False in a, align_corners=True in b",
    ),
    "a switch left out": (
        "topk", lambda x: x.topk(3)[0], lambda x: x.topk(3, largest=False)[0], "largest=True in a, largest=False in b",
    ),
    "a switch by position": (
        "sort", lambda x: x.sort(-1)[0], lambda x: x.sort(-1, True)[0], "descending=False in a, descending=True in b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_reason_names_the_argument_as_it_is_on_both_sides(name):
    op, a, b, because = CASES[name]
    found = first(Only(a), Only(b), table())
    assert (found.op, found.kind, found.because) == (op, "constant", because)


def test_a_clamp_at_zero_is_a_relu_from_below_and_none_from_above():
    for clamped in (lambda x: x.clamp(min=0), lambda x: x.clamp(0, None), lambda x: x.clamp_min(0)):
        assert first(Only(torch.relu), Only(clamped), table()) is None
    found = first(Only(torch.relu), Only(lambda x: x.clamp(max=0)), table())
    assert (found.op, found.because) == ("clamp", "relu in a, clamp in b")


# Where it shows only later ---------------------------------------------------------------------------


class Picking(nn.Module):
    """Two projections and what picks between them."""

    def __init__(self, pick: Forward) -> None:
        super().__init__()
        self.one, self.two, self.pick = nn.Linear(8, 8), nn.Linear(8, 8), pick

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.pick(self.one(x)))


class Renamed(nn.Module):
    """The same, whose modules have other names."""

    def __init__(self, model: Picking, pick: Forward) -> None:
        super().__init__()
        self.first, self.last, self.choose = model.one, model.two, pick

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.choose(self.first(x)))


PICKS: dict[str, tuple[Forward, Forward, str]] = {
    "topk": (lambda y: y.topk(8)[0], lambda y: y.topk(8, largest=False)[0], "largest=True in a, largest=False in b"),
    "sort": (lambda y: y.sort(-1)[0], lambda y: y.sort(descending=True)[0],
             "descending=False in a, descending=True in b"),
    "argsort": (lambda y: y.gather(-1, y.argsort(-1)), lambda y: y.gather(-1, y.argsort(-1, True)),
                "descending=False in a, descending=True in b"),
}  # fmt: skip


@pytest.mark.parametrize("values", ["stats", "tensors"])
@pytest.mark.parametrize("named", ["alike", "otherwise"])
@pytest.mark.parametrize("op", PICKS)
def test_a_step_that_picks_other_elements_is_named_and_no_projection_beside_it(op, named, values):
    right, wrong, because = PICKS[op]
    torch.manual_seed(0)
    a = Picking(right)
    b: nn.Module = Renamed(a, wrong)
    if named == "alike":
        b = Picking(wrong)
        b.load_state_dict(a.state_dict())
    found = first(a, b, table(), values)
    assert (found.path, found.op, found.kind, found.because) == ("", op, "constant", because)


@pytest.mark.parametrize("op", ["topk", "sort"])
def test_a_projection_before_a_step_that_picks_other_elements_is_not_named(op):
    torch.manual_seed(0)
    linear = nn.Linear(8, 8)
    a, b = (nn.Sequential(linear, Only(lambda y, pick=pick: pick(y)[:, :3])) for pick in PICKS[op][:2])
    found = first(a, b, table(), "stats")
    assert (found.path, found.op, found.kind, found.because) == ("1", op, "constant", PICKS[op][2])


# What a run writes, and what is used again --------------------------------------------------------------


def normed() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()).eval()


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_a_norm_left_in_training_is_named_for_that_and_not_for_its_written_statistics(values):
    a, b = normed(), normed()
    b[1].train()
    found = first(a, b, table(), values)
    because = "training=False in a, training=True in b"
    assert (found.path, found.op, found.kind, found.because) == ("1", "batch_norm", "constant", because)
    a[1].running_mean.fill_(3.0)  # before the runs
    found = first(a, b, table(), values)
    assert (found.kind, found.because) == ("weights", "1.running_mean differs from that of a")


class Turned(nn.Module):
    """Two values turned by angles, as rotary positions are."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.angles = nn.Linear(8, 8)
        self.scale = scale

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        angles = self.angles(x)
        cos, sin = angles.cos() * self.scale, angles.sin() * self.scale
        return x * cos + x.flip(-1) * sin, x.exp() * cos + x.exp().flip(-1) * sin


@pytest.mark.parametrize("scales", [(1.0, 1.1), (1.1, 1.0)])
def test_a_scale_that_is_one_on_one_side_is_named_once_and_has_its_counterpart(scales):
    torch.manual_seed(0)
    a, b = (Turned(scale) for scale in scales)
    b.angles = a.angles
    with torch.no_grad():
        found = fxdebug.compare(fx_debug(a, table()), fx_debug(b, table())).findings
    because = "{:g} in a, {:g} in b".format(*scales)
    assert [(row.op, row.kind, row.because) for row in found] == [("mul", "constant", because)] * 2


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.5), nn.Dropout1d(0.5), nn.AlphaDropout(0.5), nn.RReLU(), nn.BatchNorm1d(4)]
)
@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_a_layer_that_trains_in_one_run_alone_is_told_so_whichever_run_it_is(layer: nn.Module, values: str) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), layer), torch.randn(6, 4, 8)
    found = []
    for is_training in (False, True):
        a, b = copy.deepcopy(model).train(is_training), copy.deepcopy(model).train(not is_training)
        cause = first(a, b, x, values)
        found.append((cause.kind, cause.because))
    assert found == [
        ("constant", "training=False in a, training=True in b"),
        ("constant", "training=True in a, training=False in b"),
    ]


def test_random_numbers_of_both_runs_or_of_one_are_told_apart() -> None:
    x = torch.ones(8, 8)
    drawn = Only(lambda x: x * torch.rand_like(x))
    assert first(drawn, drawn, x).because == "random numbers were drawn: seed both runs alike"


def test_dimensions_of_a_transpose_are_the_same_from_either_end() -> None:
    x = torch.randn(2, 3, 4)
    one, other = (Only(lambda y, dims=dims: y.transpose(*dims).flatten() * 2) for dims in ((-1, -2), (1, 2)))
    assert first(one, other, x) is None
    turned = Only(lambda y: y.transpose(0, 1).flatten() * 2)
    assert first(Only(lambda y: y.transpose(1, 0).flatten() * 2), turned, x) is None
    assert "-1, -2 in a, 0, 1 in b" in first(one, turned, x).because


def test_why_a_number_is_infinite_in_one_run_is_told() -> None:
    square, x = Only(lambda y: y * y), torch.full((4,), 300.0)
    found = fxdebug.compare(fx_debug(square, x), fx_debug(square, x.half())).first
    assert found is not None
    assert (found.kind, found.op, found.because) == (
        "nonfinite", "mul", "in b the result is beyond the largest float16, 6.55e+04",
    )  # fmt: skip
