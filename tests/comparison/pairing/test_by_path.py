"""Calls are paired by their paths."""

from __future__ import annotations

from fxdebug.comparison.compare_traces import pair_traces
from support.blocks import model, run


def test_calls_of_one_name_are_paired_by_it():
    pairs = pair_traces(run(model()), run(model()))
    assert {(found.matched_by, found.confidence) for found in pairs.calls.values()} == {("path", 1.0)}
    assert len(pairs.calls) == len(pairs.a.trace.calls)
