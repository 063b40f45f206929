"""What a page shows of the tensors that a run kept: a histogram of each value but weights, one element, flags."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.api.page import tensors


class Several(nn.Module):
    """Returns six numbers, one number, flags and complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.linear(x)
        return y, y.sum(), y > 0, torch.complex(y, y)


def test_values_of_several_real_numbers_have_a_histogram_and_no_others() -> None:
    trace = fx_debug(Several(), torch.ones(2, 2), values="tensors")
    found = tensors.kept_in(trace, [])
    shapes = [trace.values[number].shape for number in found["histograms"]]
    assert sorted(set(shapes)) == [(2, 2), (2, 3)]
    assert found["reports"] == () and found["remarks"] == ()


def test_values_without_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "MOST_ELEMENTS", 8)
    trace = fx_debug(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(2, 2), values="tensors")
    found = tensors.kept_in(trace, [])
    assert [trace.values[number].shape for number in found["histograms"]] == [(2, 2)]
    assert found["remarks"] == ("2 values have no histogram: those before them have 8 elements",)


def test_a_run_that_kept_no_tensors_has_none() -> None:
    found = tensors.kept_in(fx_debug(nn.ReLU(), torch.ones(2)), [])
    assert found == {"histograms": {}, "reports": (), "remarks": ()}
