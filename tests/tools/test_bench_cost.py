"""The bars of ``make bench`` on the analyses of cost: each is measured, for the models that are asked for."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(autouse=True)
def _tools_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def test_bench_cost_measures_the_bars_of_the_models_that_are_asked_for(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "PAIRS", 1)
    found = tool.cost_verdicts(["mlp-12", "weights-2000"])
    assert [bar.what for bar in found] == ["tree on weights-2000: microseconds for each of its 2000 parameters"]
    model, inputs = tool.MODELS["mlp-12"].make()
    for bar in (tool.profile_adds, tool.memory_takes, tool.flops_take, tool.duration_is):
        assert bar("mlp-12", model, inputs).measured > 0


def test_bench_cost_saves_and_loads_a_run_of_many_calls(tool: ModuleType) -> None:
    found = tool.many_calls(8)
    assert [(bar.what, bar.limit) for bar in found] == [
        ("tree of 8 calls: microseconds for each", 60),
        ("graph, saved of 8 calls: microseconds for each", 150),
        ("load of 8 calls: seconds", 3),
    ]
    assert all(bar.measured > 0 for bar in found)
