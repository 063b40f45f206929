"""Numbers of units are those of numpy over all that was added, and samples are counted as the layout says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fxdebug.features.shared.records.units import Units
from fxdebug.features.shared.units.unit_statistics import UnitSums


def units_of(*outputs: Tensor, axis: int = -1) -> Units:
    sums = UnitSums()
    for output in outputs:
        sums.add(output, None, None, axis)
    found = sums.result()
    assert found is not None
    return found


def test_numbers_of_units_over_two_batches_are_those_of_numpy() -> None:
    torch.manual_seed(0)
    parts = torch.randn(5, 3) * 4, torch.randn(7, 3) * 4
    parts[0][:, 1] = parts[1][:, 1] = 0
    found, all_of_them = units_of(*parts), torch.cat(parts).numpy()
    assert found.tokens == found.samples == 12
    np.testing.assert_allclose(found.mean_abs, np.abs(all_of_them).mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.rms, np.sqrt((all_of_them**2).mean(0)), rtol=1e-6)
    np.testing.assert_allclose(found.absmax, np.abs(all_of_them).max(0))
    np.testing.assert_allclose(found.range, all_of_them.max(0) - all_of_them.min(0))
    np.testing.assert_allclose(found.large, (np.abs(all_of_them) >= 6).mean(0))
    assert found.zero.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("shape", "axis", "tokens", "samples"),
    [
        ((4, 3), -1, 4, 4),
        ((4, 5, 3), -1, 20, 20),  # a sequence: each token is a sample
        ((4, 3, 5), 1, 20, 4),  # channels first: a sequence is one sample
        ((3, 5, 6), 0, 30, 1),  # an image without a batch
        ((4, 3, 5, 6), 1, 120, 4),
        ((4, 5, 6, 3), -1, 120, 4),  # an image with channels last
    ],
)
def test_samples_are_counted_as_the_layout_says(shape: tuple[int, ...], axis: int, tokens: int, samples: int) -> None:
    found = units_of(torch.ones(shape), axis=axis)
    assert (found.tokens, found.samples, len(found.absmax)) == (tokens, samples, 3)


def test_what_a_unit_is_given_lies_so_many_deviations_below_nought() -> None:
    given = torch.tensor([[-3.0, 1.0], [-5.0, 3.0]])
    sums = UnitSums()
    sums.add(given.relu(), given, None)
    found = sums.result()
    assert found is not None and found.below is not None
    np.testing.assert_allclose(found.below, [4.0, -2.0])


def test_elements_near_the_bounds_of_a_sigmoid_are_saturated() -> None:
    sums = UnitSums()
    sums.add(torch.tensor([[0.001, 0.5], [0.995, 0.02]]), None, (0.0, 1.0))
    found = sums.result()
    assert found is not None and found.saturated == 0.5


def test_tensors_without_units_or_with_another_number_of_them_are_left_out() -> None:
    sums = UnitSums()
    assert sums.result() is None
    sums.add(torch.ones(2, 3), None, None)
    for output in (torch.ones(2, 4), torch.ones(3), torch.ones(2, 3, dtype=torch.long), torch.ones(0, 3)):
        sums.add(output, None, None)
    found = sums.result()
    assert found is not None and (found.tokens, sums.left_out) == (2, 4)
