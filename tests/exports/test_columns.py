"""The columns of the call tree: measures and facts, with units, folded layers as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import UsageError, fx_debug
from fxdebug.data.measures import CALL, register
from fxdebug.data.report import ReportData

LOAD = register("test.load", "s", "a number of this test that adds up", [CALL], adds=True)
SHARE = register("test.share", "%", "a number of this test that does not add up", [CALL])


@pytest.fixture(scope="module")
def trace() -> fxdebug.Trace:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv2d(3, 3, (3, 1), padding="same"), nn.ReLU()) for _ in range(3)]
    trace = fx_debug(nn.Sequential(*layers, nn.Conv2d(3, 2, 1)), torch.ones(1, 3, 5, 5))
    load = {f"{i}.0#0": 0.001 * (i + 1) for i in range(3)} | {"Sequential#0": 0.0305, "3#0": 3e-8}
    share = {f"{i}.0#0": 10.0 * (i + 1) for i in range(3)}
    report = ReportData("test", "Sequential", (), measures={"test.load": load, "test.share": share})
    return trace.with_measures(report)


def lines(trace: fxdebug.Trace, columns: Any, **options: Any) -> list[str]:
    return trace.text(columns=columns, width=options.pop("width", 80), color=False, **options).splitlines()[1:]


def test_repeated_layers_are_summed_or_averaged_in_one_unit(trace: fxdebug.Trace) -> None:
    assert lines(trace, "test.load,test.share, params,count") == [
        "                      test.load test.share",
        "call                         ms          % params count",
        "Sequential                 30.5        n/a     98    50",
        "├ 0 … 2 ×3 Sequential       n/a        n/a     90   225",
        "│ ├ 0 Conv2d                  6         20     90   225",
        "│ └ 1 ReLU                  n/a        n/a      0   225",
        "└ 3 Conv2d                3e-05        n/a      8    50",
        "measured by test: test.load, test.share",
    ]


def test_the_facts_that_users_of_torchinfo_know_are_columns(trace: fxdebug.Trace) -> None:
    shown = lines(trace, ["input", "output", "kernel", "params", "trainable", "macs", "bytes", "dtype"])
    assert shown[:7] == [
        "                                                              macs bytes",
        "call                  in      out     kernel params trainable kMAC     B dtype",
        "Sequential            1×3×5×5 1×2×5×5            98        98 2.17   200 f32",
        "├ 0 … 2 ×3 Sequential 1×3×5×5 1×3×5×5            90        90 2.02   900 f32",
        "│ ├ 0 Conv2d          1×3×5×5 1×3×5×5 3×1        90        90 2.02   900 f32",
        "│ └ 1 ReLU            1×3×5×5 1×3×5×5             0         0    0   900 f32",
        "└ 3 Conv2d            1×3×5×5 1×2×5×5 1×1         8         8 0.15   200 f32",
    ]


def test_columns_that_have_no_room_are_named(trace: fxdebug.Trace) -> None:
    shown = lines(trace, "params,macs,bytes,flops,absmax,test.load,output", width=50)
    assert all(len(line) <= 50 for line in shown)
    assert "no room in 50 columns for test.load, output" in shown


def test_a_call_without_its_number_has_none_in_its_row(trace: fxdebug.Trace) -> None:
    assert [line.split()[-1] for line in lines(trace, "test.share", fold=False)[2:5]] == ["n/a", "n/a", "10"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("parms", r"this run has no column 'parms'. Did you mean 'params'\? It has input, output, dtype, kernel"),
        ("time.self", "this run has no column 'time.self'"),
        ("", "this run has no column ''"),
    ],
)
def test_an_unknown_column_is_an_error_with_those_there_are(trace: fxdebug.Trace, columns: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trace.text(columns=columns)


def test_a_call_that_raised_says_so_where_its_result_would_be() -> None:
    class Fails(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fx_debug(nn.Sequential(nn.ReLU(), Fails()), torch.ones(1))
    trace = fxdebug.last_failed()
    assert trace is not None
    assert [line.split() for line in lines(trace, "output,params")[1:4]] == [
        ["Sequential", "raised", "0"], ["├", "0", "ReLU", "1", "0"], ["└", "1", "Fails", "raised", "0"],
    ]  # fmt: skip
