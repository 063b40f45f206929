"""Fixtures that the tests of this folder share."""

from __future__ import annotations

import pytest
import torch

from fxdebug import Trace, fx_debug
from support.drawn import Tower
from support.trees import ones


@pytest.fixture(scope="module")
def tower() -> Trace:
    torch.manual_seed(0)
    return fx_debug(Tower(), ones(3))


@pytest.fixture(params=["TB", "LR"])
def rankdir(request: pytest.FixtureRequest) -> str:
    return request.param
