"""Fixtures that the tests of this folder share."""

from __future__ import annotations

import pytest

import fxdebug
from fxdebug import Trace
from support.asked import run


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module", params=["as it ran", "loaded"])
def asked(request: pytest.FixtureRequest, trace: Trace) -> Trace:
    """The trace of the process that ran it, and the one that was loaded: they answer alike."""
    assert trace.folder is not None
    return trace if request.param == "as it ran" else fxdebug.load(trace.folder)
