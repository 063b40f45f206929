"""Fixtures of the tests that draw and export: a run with towers, and two comparisons."""

from __future__ import annotations

import pytest
import torch

from fxdebug import Trace, compare, fx_debug
from fxdebug.api.comparison import Comparison
from support.drawn import Tower
from support.planted import net, planted, x
from support.trees import ones


@pytest.fixture(scope="module")
def tower() -> Trace:
    torch.manual_seed(0)
    return fx_debug(Tower(), ones(3))


@pytest.fixture(params=["TB", "LR"])
def rankdir(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def different() -> Comparison:
    return planted()


@pytest.fixture(scope="module")
def equal() -> Comparison:
    with torch.no_grad():
        return compare(fx_debug(net(), x()), fx_debug(net().to(torch.bfloat16), x().to(torch.bfloat16)))
