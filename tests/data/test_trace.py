"""The data of a trace: its former names still work for one release, and say what to write instead."""

from __future__ import annotations

import pytest
import torch

from fxdebug import fx_debug


def test_the_former_names_of_the_graphs_warn_and_give_the_same():
    trace = fx_debug(torch.nn.ReLU(), torch.ones(2))
    with pytest.warns(DeprecationWarning, match=r"Trace\.explanation is called Trace\.call_graphs now") as warned:
        assert trace.explanation is trace.call_graphs
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"Trace\.explain is called Trace\.graph_source now"):
        assert trace.explain is trace.graph_source
