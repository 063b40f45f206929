"""Statistics of a device without float64 are those of the same numbers on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fxdebug.comparison.elementwise import _as_float64
from fxdebug.features.shadow.twin_runs import relative_error
from fxdebug.features.shared.units.distribution import as_numpy
from fxdebug.features.weights.facts import change_of
from fxdebug.features.weights.spectrum import spectrum
from fxdebug.stats.doubles import where_doubles, widest_on
from fxdebug.stats.histogram import histogram
from support.narrow_device import NARROW, OnNarrowDevice

MATRIX = torch.linspace(-1, 2, 24).view(4, 6)

TAKEN: dict[str, Callable[[Tensor], Any]] = {
    "histogram": histogram,
    "spectrum": spectrum,
    "change": lambda x: change_of("weight", x, x * 1.5),
    "elements": lambda x: as_numpy(x).tolist(),
    "difference": lambda x: _as_float64(x).tolist(),
    "relative error": lambda x: relative_error(x, x * 1.01),
    "a sum": lambda x: where_doubles(x).double().sum().item(),
}


@pytest.mark.parametrize("what", TAKEN)
def test_numbers_are_those_of_the_cpu(what: str) -> None:
    assert TAKEN[what](OnNarrowDevice(MATRIX)) == TAKEN[what](MATRIX)


def test_the_fake_device_refuses_what_a_real_one_refuses() -> None:
    for cast in (Tensor.double, lambda x: x.to(torch.float64), lambda x: x.to("cpu", torch.float64)):
        with pytest.raises(TypeError, match="Cannot convert"):
            cast(OnNarrowDevice(MATRIX))
    assert torch.equal(OnNarrowDevice(MATRIX).cpu().double(), MATRIX.double())


def test_only_devices_that_all_have_float64_are_asked_for_it() -> None:
    assert [widest_on(torch.device(name)) for name in ("cpu", "cuda", "xpu", "mps")] == [
        torch.float64, torch.float64, torch.float32, torch.float32,
    ]  # fmt: skip
    assert where_doubles(MATRIX) is MATRIX
    assert OnNarrowDevice(MATRIX).device.type == NARROW.type and isinstance(nn.Parameter(MATRIX), Tensor)
