"""The edges of dtypes: overflow, numbers too small, lost digits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.analyses.numbers.dtype_limits import _are_whole_numbers, _depth_below_zero
from fxdebug.data.values import Stats, Value
from support.bodies import Body, kinds


def test_s3_a_product_that_vanishes_in_float16_is_reported():
    trace = fx_debug(Body(lambda x: x * x), torch.full((4,), 1e-4, dtype=torch.float16))
    assert kinds(trace) == [("underflow", "warning", "mul")]
    assert kinds(fx_debug(Body(lambda x: x * x), torch.full((4,), 1e-4))) == []


def test_s3_an_overflow_of_float16_is_reported_at_its_sum_and_one_of_float32_at_its_exponential():
    assert kinds(fx_debug(Body(lambda x: x + x), torch.full((4,), 6e4, dtype=torch.float16))) == [
        ("inf", "error", "add")
    ]
    assert kinds(fx_debug(Body(lambda x: (x * 1000).exp()), torch.ones(4))) == [("inf", "error", "exp")]


@pytest.mark.parametrize(
    ("numbers", "are_whole"),
    [
        ([0.0, 1.0, 2.0, 7.0], True),
        ([-3.0, -1.0, 4.0], True),
        ([0.0, 0.5, 2.0], False),  # the ends are, what is between them is not
        ([0.5, 1.0, 2.0], False),
        ([1.0, 2.0, 2.5], False),
    ],
)
def test_whole_numbers_are_known_by_their_ends_and_the_sum_of_their_squares(numbers, are_whole):
    (value,) = fx_debug(nn.Identity(), torch.tensor(numbers)).root.outputs
    assert _are_whole_numbers(value) is are_whole
    assert not _are_whole_numbers(Value(0, (1,), "float32", "cpu"))


@pytest.mark.parametrize(
    ("stats", "depth"),
    [
        (None, None),
        (Stats(4, 0.0, 1.0, -8.0, 8.0, 8.0), 8.0),
        (Stats(4, 0.0, 1.0, -8.0, 9.0, 9.0), None),
        (Stats(4, 0.0, 1.0, 0.0, 0.0, 0.0), None),
        (Stats(4, 0.0, 1.0, 0.0, 0.0, 0.0, neginf=1), math.inf),
        (Stats(4, None, None, None, None, None, nan=4), None),
    ],
)
def test_a_mask_goes_at_least_as_far_below_zero_as_above(stats, depth):
    assert _depth_below_zero(Value(0, (4,), "float32", "cpu", stats=stats)) == depth


def test_zeros_that_were_there_before_did_not_vanish():
    x = torch.tensor([0.0, 0.0, 0.5, 2.0], dtype=torch.float16)
    assert kinds(fx_debug(Body(lambda x: (x * x).div(2) * (x > 1)), x)) == []


def test_a_cast_that_loses_everything_is_reported():
    assert kinds(fx_debug(Body(lambda x: x.half() + 1), torch.full((4,), 1e-9))) == [("underflow", "warning", "half")]


def test_s3_what_comes_close_to_the_largest_float16_is_reported_where_it_begins():
    x = torch.full((4,), 100.0, dtype=torch.float16)
    assert kinds(fx_debug(Body(lambda x: (x * 300) + 1), x)) == [("headroom", "warning", "mul")]
    assert kinds(fx_debug(Body(lambda x: x * 100), x)) == []


def test_s3_what_would_overflow_in_float16_is_advice_told_once_for_the_run():
    found = fx_debug(Body(lambda x: (x * 1e5 + 1).sqrt() + (x * 1e6).sqrt()), torch.ones(4)).check()
    assert [(f.kind, f.severity, f.op) for f in found] == [("float16", "advice", "mul")] and found.healthy
    assert found[0].value.stats.absmax == 1e6 and len(found[0].others) == 1


def test_the_difference_of_the_largest_numbers_of_float64_is_no_cancellation():
    large = torch.full((4,), 1.7e308, dtype=torch.float64)
    assert kinds(fx_debug(Body(lambda x: (x * 1.0) - x / 2), large)) == [("float16", "advice", "mul")]
    tiny = torch.full((4,), 5e-324, dtype=torch.float64)
    trace = fx_debug(Body(lambda x: (x * 1.0 + large) - large + x), tiny)
    assert ("cancellation", "warning", "sub") not in kinds(trace)  # its result is 0: nothing is left of it


def test_s4_cancellation_is_flagged_at_the_subtraction():
    x = torch.linspace(-1, 1, 101)
    assert kinds(fx_debug(Body(lambda x: (x + 1e4) - 1e4), x)) == [("cancellation", "warning", "sub")]

    def variance(x):
        shifted = x + 3000
        return (shifted * shifted).mean() - shifted.mean() ** 2

    assert ("cancellation", "warning", "sub") in kinds(fx_debug(Body(variance), x))


class Difference(nn.Module):
    """The difference of what two modules hand on."""

    def __init__(self, factor):
        super().__init__()
        self.factor, self.same, self.sub = factor, nn.Identity(), Body(lambda a, b: a.view(-1) - b)

    def forward(self, a, b):
        return self.sub(self.same(a if self.factor is None else a * self.factor), b)


def test_only_what_was_computed_and_so_rounded_loses_digits():
    x = torch.linspace(-1, 1, 101)
    large = torch.full_like(x, 1e4)
    assert kinds(fx_debug(Difference(None), (x + large, large))) == []
    assert kinds(fx_debug(Difference(1.0), (x + large, large))) == [("cancellation", "warning", "sub")]


def test_differences_of_whole_numbers_and_of_equals_are_exact():
    assert kinds(fx_debug(Body(lambda x: (x + 1000) - 999), torch.arange(4.0))) == []
    assert kinds(fx_debug(Body(lambda x: x * 1.1 - x * 1.1), torch.rand(4))) == []
    assert kinds(fx_debug(Body(lambda x: x - x.mean()), torch.randn(64) + 3)) == []


def test_numbers_below_the_smallest_normal_one_are_counted_where_tensors_were_kept(tmp_path):
    model = nn.Sequential(nn.Identity())
    x = torch.full((8,), 1e-6, dtype=torch.float16)
    assert kinds(fx_debug(model, x)) == []
    trace = fx_debug(model, x, values="tensors", save=tmp_path)
    assert {kind for kind, _, _ in kinds(trace)} == {"subnormal"}
    assert fxdebug.check(tmp_path, tensors=False) == ()
