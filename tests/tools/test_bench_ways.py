"""The table of ``make bench`` with both ways of recording: every recording of a model, in each way that is there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(autouse=True)
def _tools_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def test_bench_ways_measures_both_with_their_bars_and_one_where_there_is_no_build(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "BARS", {"mlp-12": ((1e9, 1e9), (1e9, -1.0), (1e9, None))})
    found = tool.measured_ways(["mlp-12"], rounds=1)
    is_there = tool.core.loaded().module is not None
    ways = [True, False] if is_there else [False]
    assert [(each.recording, each.is_native) for each in found] == [
        (recording, way) for recording in tool.RECORDINGS for way in ways
    ]
    assert [each.verdict.met for each in found if not each.is_native] == [True, False, True]
    lines = tool.page(found).splitlines()
    assert sum(line.startswith("| mlp-12 |") for line in lines) == 3
    assert [line for line in lines if "**missed**" in line] == [line for line in lines if "graph, later" in line]
    assert tool.measured_ways(["another"]) == []
