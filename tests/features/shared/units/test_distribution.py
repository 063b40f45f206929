"""Rows A2 and A3: distributions equal numpy's in float64, of every dtype, and over several tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fxdebug.features.shared.records.distributions import QUANTILES
from fxdebug.features.shared.units.distribution import Distributions, as_numpy, distribution, robust_outliers
from fxdebug.stats.histogram import histogram


def samples(dtype: torch.dtype) -> Tensor:
    torch.manual_seed(0)
    values = torch.randn(1000) * 3
    return values > 0 if dtype == torch.bool else values.to(dtype)


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a3_statistics_are_those_of_numpy_in_float64(dtype: torch.dtype) -> None:
    tensor = samples(dtype)
    exact = tensor.double().numpy()
    found = distribution(tensor)
    apart = (exact - exact.mean()) / exact.std()
    assert (found.mean, found.std, found.min, found.max) == (exact.mean(), exact.std(), exact.min(), exact.max())
    assert found.quantiles == tuple(np.quantile(exact, QUANTILES)) and found.median == np.median(exact)
    assert found.rms == np.sqrt(np.mean(exact**2)) and found.absmax == np.abs(exact).max()
    assert found.skew == pytest.approx(np.mean(apart**3)) and found.kurtosis == pytest.approx(np.mean(apart**4) - 3)
    assert (found.count, found.zeros) == (1000, int((exact == 0).sum()))


@pytest.mark.parametrize("bins", [8, 64])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a2_bins_are_those_of_numpy_and_nothing_is_lost(dtype: torch.dtype, bins: int) -> None:
    tensor = samples(dtype)
    counts, edges = np.histogram(tensor.double().numpy(), bins)
    found = distribution(tensor, bins)
    assert found.counts == tuple(counts) and found.edges == tuple(edges)


def test_a2_counts_nan_and_infinities_add_up_to_all_elements() -> None:
    tensor = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0.0, 2.0])
    found = distribution(tensor)
    assert sum(found.counts) + found.nan + found.posinf + found.neginf == found.count == 6
    assert (found.nan, found.posinf, found.neginf, found.zeros, found.mean) == (1, 1, 1, 1, 1.0)


def test_a3_empty_one_element_and_all_alike() -> None:
    empty, one = distribution(torch.empty(0, 3)), distribution(torch.tensor([2.5]))
    assert (empty.count, empty.mean, empty.counts) == (0, None, ())
    assert (one.mean, one.std, one.median, one.skew, sum(one.counts)) == (2.5, 0.0, 2.5, None, 1)
    assert distribution(torch.full((3,), float("nan"))).mean is None


def test_a3_a_million_ones_in_float16_have_the_mean_1() -> None:
    found = distribution(torch.ones(1_000_000, dtype=torch.float16))
    assert (found.mean, found.std, found.max) == (1.0, 0.0, 1.0)


def test_several_tensors_have_exact_moments_and_counts() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(500), torch.randn(700) * 4 + 3, torch.randn(300) - 20]
    seen = Distributions()
    for part in parts:
        seen.add(as_numpy(part))
    found, whole = seen.result(), torch.cat(parts).double().numpy()
    apart = (whole - whole.mean()) / whole.std()
    assert (found.count, found.exact, sum(found.counts)) == (1500, False, 1500)
    assert found.mean == pytest.approx(whole.mean()) and found.std == pytest.approx(whole.std())
    assert found.skew == pytest.approx(np.mean(apart**3)) and found.kurtosis == pytest.approx(np.mean(apart**4) - 3)
    inside = np.histogram(whole, np.array(found.edges))[0]
    assert np.abs(np.array(found.counts) - inside).max() <= 1  # a number at an edge may round to either side
    width = found.edges[1] - found.edges[0]
    assert np.abs(np.array(found.quantiles) - np.quantile(whole, QUANTILES)).max() <= width / 4


@pytest.mark.parametrize(("numbers", "expected"), [([1.0] * 9 + [50.0], None), ([], None), ([2.0], None)])
def test_robust_deviations_need_elements_that_differ(numbers: Any, expected: Any) -> None:
    assert robust_outliers(np.array(numbers), 10.0) is expected


def test_robust_outliers_are_counted_where_deviations_hide_them() -> None:
    numbers = np.sort(np.concatenate([np.linspace(-1, 1, 100), [1000.0] * 5]))
    found = robust_outliers(numbers, 10.0)
    assert found is not None and found[0] == 5 and (np.abs(numbers - numbers.mean()) > 5 * numbers.std()).sum() == 0


@pytest.mark.parametrize("shift", [0.0, 30.0, -30.0])
def test_the_largest_outlier_is_told_in_robust_deviations_wherever_the_middle_lies(shift: float) -> None:
    numbers = np.sort(np.concatenate([np.linspace(-1, 1, 101), [9.0, -5.0]])) + shift
    unit = 1.4826 * float(np.median(np.abs(numbers - np.median(numbers))))
    assert robust_outliers(numbers, 3.0) == (2, pytest.approx(9 / unit))
    assert robust_outliers(numbers, 8.0) == (1, pytest.approx(9 / unit))
    assert robust_outliers(numbers, 100.0) == (0, pytest.approx(9 / unit))


def test_elements_are_kept_in_float32_where_it_holds_them() -> None:
    kept = {dtype: as_numpy(samples(dtype)).dtype.itemsize for dtype in (*DTYPES, torch.int16, torch.int32)}
    narrow = {torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.bool, torch.int16}
    assert kept == {dtype: 4 if dtype in narrow else 8 for dtype in kept}


def test_the_distribution_of_one_tensor_is_exact_also_of_one_without_numbers() -> None:
    nothing, some = np.array([np.nan, np.inf]), np.array([1.0, 3.0])
    alone, after = Distributions(), Distributions()
    alone.add(nothing)
    assert (alone.result().exact, alone.result().count, alone.result().nan, alone.result().mean) == (True, 2, 1, None)
    for part in (nothing, some):
        after.add(part)
    found = after.result()
    assert (found.exact, found.count, found.nan, found.posinf, found.mean) == (False, 4, 1, 1, pytest.approx(2.0))


def test_quantiles_of_a_constant_tensor_and_another_one_are_within_a_fraction_of_the_range() -> None:
    seen, parts = Distributions(), (np.full(500, 5.0), np.linspace(4.0, 6.0, 1000))
    for part in parts:
        seen.add(part)
    exact = np.quantile(np.concatenate(parts), QUANTILES)
    assert seen.result().quantiles == pytest.approx(exact, abs=2 * 2 / 1024)


@pytest.mark.parametrize("number", [1e25, -3e38, 2.0**60])
def test_a_large_tensor_whose_elements_are_one_number_has_bins(number: float) -> None:
    constant = torch.full((7,), number)
    found = distribution(constant, bins=4)
    assert (found.mean, found.counts) == (constant[0].double().item(), (0, 0, 7, 0))
    gathered = Distributions(bins=4)
    for _ in range(2):
        gathered.add(as_numpy(constant))
    assert gathered.result().count == 14
    assert histogram(constant, bins=4).counts == (0, 0, 7, 0)
