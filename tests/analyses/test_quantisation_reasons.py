"""What is seen in a weight and in what quantisation made of it: at each bound and just inside."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fxdebug.analyses.quantisation.reasons import reason_of


def with_outlier(size: float, at: tuple[int, int] = (3, 3)) -> Tensor:
    weight = torch.linspace(-1, 1, 64)[torch.arange(64) * 37 % 64].view(8, 8)
    weight[at] = size
    return weight


def steps(weight: Tensor, step: float) -> Tensor:
    return (weight / step).round() * step


def test_rows_that_are_gone_and_weights_that_are_cut_off_are_counted() -> None:
    weight = with_outlier(0.5)
    gone = weight.clone()
    gone[2], gone[5] = 0.0, 0.0
    assert reason_of(weight, gone) == "2 of 8 rows of its weight are 0 in b"
    weight[4] = 0.0
    gone[4] = 0.0
    assert reason_of(weight, gone) == "2 of 8 rows of its weight are 0 in b"  # one was so before
    weight = with_outlier(2.0)
    cut = "1 of 64 elements of its weight are beyond the range of b: they are cut off"
    assert reason_of(weight, weight.clamp(-1, 1)) == cut
    barely = with_outlier(1.0)
    top = float(barely[3].abs().max())
    assert reason_of(barely, barely.clamp(-top / 1.04, top / 1.04)) == ""
    coarse = steps(weight.clamp(-1, 1), 0.5)  # with few values in a channel one step may be as large
    assert reason_of(weight, coarse) == ""


def test_an_outlier_of_eight_times_the_median_is_told_and_one_below_is_not() -> None:
    others = torch.ones(5, 4)
    for size, told in ((8.0, "the largest |w| of row 1 is 8 times the median of the rows"), (7.9, "")):
        weight = others.clone()
        weight[1] = size
        assert reason_of(weight, None) == told
        assert reason_of(weight.T, None) == told.replace("row", "column")


@pytest.mark.parametrize("seen", [with_outlier(40.0), with_outlier(40.0).T], ids=["rows", "columns"])
def test_an_outlier_is_to_blame_where_the_others_lost_more_and_share_few_steps(seen: Tensor) -> None:
    lost = reason_of(seen, steps(seen, 0.3))
    assert lost.startswith("the largest |w| of row 3 is ")
    assert lost.endswith(" times the median of the rows: the others share few steps")
    assert reason_of(seen, steps(seen, 0.01)) == ""  # many steps are left to them
    noisy = torch.where(seen > 2, seen, seen * 0.97)
    assert reason_of(seen, noisy) == ""  # of a floating dtype
    own = seen.clone()
    own[3] = steps(own[3], 13.0)
    assert reason_of(seen, own) == ""


@pytest.mark.parametrize(
    "weight",
    [
        torch.ones(4),
        torch.ones(2, 2, dtype=torch.int8),
        torch.ones(0, 2),
        torch.full((2, 2), torch.nan),
        torch.zeros(2, 2),
    ],
    ids=["vector", "integers", "empty", "not finite", "zeros"],
)
def test_of_other_weights_nothing_is_told(weight: Tensor) -> None:
    assert reason_of(weight, None) == reason_of(weight, weight) == ""


def test_a_weight_of_another_shape_is_not_compared() -> None:
    weight = with_outlier(40.0)
    assert reason_of(weight, torch.zeros(8, 4)) == reason_of(weight, None) != ""
