"""Fixtures that the tests of this folder share."""

from __future__ import annotations

import pytest
import torch

import fxdebug
from fxdebug import Trace, fx_debug
from support.asked import Model


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    torch.manual_seed(0)
    return fx_debug(Model(), torch.tensor([[1, 2, 3]]), save=tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module", params=["as it ran", "loaded"])
def asked(request: pytest.FixtureRequest, trace: Trace) -> Trace:
    """The trace of the process that ran it, and the one that was loaded: they answer alike."""
    assert trace.folder is not None
    return trace if request.param == "as it ran" else fxdebug.load(trace.folder)
