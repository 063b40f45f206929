"""Fixtures that the tests of this folder share."""

from __future__ import annotations

import pytest
import torch

from fxdebug import compare, fx_debug
from fxdebug.api.comparison import Comparison
from support.planted import net, planted, x


@pytest.fixture(scope="module")
def different() -> Comparison:
    return planted()


@pytest.fixture(scope="module")
def equal() -> Comparison:
    with torch.no_grad():
        return compare(fx_debug(net(), x()), fx_debug(net().to(torch.bfloat16), x().to(torch.bfloat16)))
