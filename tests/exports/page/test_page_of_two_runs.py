"""The page of two runs has every pair of the comparison, the guilty operation, and its way onward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.api import Comparison
from support.page_data import RunOfPage, data_in


class Block(nn.Module):
    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8, eps=eps), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def model(eps: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(eps), Block())


@pytest.fixture(scope="module")
def different() -> Comparison:
    x = torch.randn(2, 8)
    return fxdebug.compare(fx_debug(model(1e-5), x), fx_debug(model(0.5), x))


@pytest.fixture(scope="module")
def data(different: Comparison, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return data_in(different.export(tmp_path_factory.mktemp("page") / "diff.html"))


def step_name(run: RunOfPage, call: int, step: int) -> str:
    if step < 0:
        return run.text(run.data["calls"]["path"][call])
    steps, calls = run.data["steps"], run.data["calls"]
    at = steps["first"][calls["graph"][call]] + step - calls["firstStep"][call]
    return f"{run.text(calls['path'][call])}/{run.text(steps['name'][at])}"


def test_every_row_is_there_with_its_places_and_numbers(different: Comparison, data: dict[str, Any]) -> None:
    rows, runs = data["comparison"]["rows"], (RunOfPage(data, 0), RunOfPage(data, 1))
    assert len(rows["error"]) == len(different.rows)
    for i, row in enumerate(different.rows):
        for run, name, side in zip(runs, "ab", (row.a, row.b)):
            call, step = rows[f"{name}Call"][i], rows[f"{name}Step"][i]
            if side is None:
                assert (call, step) == (-1, -1)
            elif row.op is None:
                assert (call, step) == (side.call.index, -1)
            else:
                assert step_name(run, call, step) == f"{side.path}/{str(side.node).rpartition('/')[2]}"
        assert rows["error"][i] == pytest.approx(row.error, rel=1e-6)
    assert data["comparison"]["verdict"] == "different"


def test_the_guilty_operation_and_its_way_onward_are_named(different: Comparison, data: dict[str, Any]) -> None:
    compared, run = data["comparison"], RunOfPage(data, 1)
    first = compared["first"]
    assert compared["kindNames"][compared["rows"]["kind"][first]] == different.first.kind == "constant"
    guilty = step_name(run, compared["rows"]["bCall"][first], compared["rows"]["bStep"][first])
    onward = [step_name(run, *place) for place in zip(compared["onward"]["call"], compared["onward"]["step"])]
    assert guilty == onward[0] == "1.norm/layer_norm"
    assert {"1/add", "2.norm/layer_norm", "2/add"} <= set(onward)
    assert not any(name.startswith("0") for name in onward)


def test_equal_runs_have_no_guilt(tmp_path: Path) -> None:
    x = torch.ones(1, 8)
    data = data_in(fxdebug.compare(fx_debug(model(1e-5), x), fx_debug(model(1e-5), x)).export(tmp_path / "x.html"))
    compared = data["comparison"]
    assert (compared["verdict"], compared["first"], compared["findings"], compared["onward"]["call"]) == (
        "equal",
        -1,
        [],
        [],
    )
    assert compared["counts"]["calls"][0] == 13
