"""The drawing of a call tree in little room, and what it says of modules that were not called."""

from __future__ import annotations

import builtins
import re

import pytest
import torch
from rich.cells import cell_len
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.exports import text
from fxdebug.exports.records import found_rows
from fxdebug.query.folding import fold_repeated


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.first(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a_part_with_a_long_name, self.unused = Part(), Part()

    def forward(self, x):
        return self.a_part_with_a_long_name(x)


def drawn(width):
    x = torch.full((1, 4), 1e-5)
    x[0, 0] = float("nan")
    torch.manual_seed(0)
    return text.tree(fx_debug(Model(), x), width=width).splitlines()


def test_columns_are_left_out_before_a_number_is_cut():
    heads = {width: next(line for line in drawn(width) if "not finite" in line) for width in (120, 80, 60, 50, 40, 30)}
    names = {width: re.split(r"\s+", head.replace("not finite", "not-finite")) for width, head in heads.items()}
    assert names == {
        120: ["call", "in", "out", "dtype", "mean", "std", "min", "max", "not-finite"],
        80: ["call", "out", "dtype", "mean", "std", "min", "max", "not-finite"],
        60: ["call", "out", "mean", "std", "min", "max", "not-finite"],
        50: ["call", "out", "mean", "max", "not-finite"],
        40: ["call", "out", "mean", "max", "not-finite"],
        30: ["call", "not-finite"],
    }


def test_no_line_is_too_long_and_no_number_is_cut():
    for width in range(28, 130):
        tree = drawn(width)[:-1]
        assert max(map(len, tree)) <= width
        assert [line for line in tree if re.search(r"\d…", line)] == [], f"at {width}"


def test_only_the_outermost_module_that_was_not_called_is_named():
    assert drawn(120)[-1] == "never called: a_part_with_a_long_name.second, unused"


def test_modules_that_were_not_called_are_named_with_the_range_of_their_numbers():
    class Idle(nn.Module):
        def __init__(self, names):
            super().__init__()
            for name in names:
                self.add_module(name, nn.Identity())

        def forward(self, x):
            return x

    for given, said in (
        (["0", "1", "2"], "0…2 ×3"),
        (["0", "3", "7"], "0,3,7 ×3"),
        (["0", "3", "7", "9"], "0…9 ×4"),
        (["drop1d", "head"], "drop1d, head"),
        (["#", "#1", "#2"], "#, #1…2 ×2"),
    ):
        assert text.tree(fx_debug(Idle(given), torch.ones(1)), width=80).splitlines()[-1] == f"never called: {said}"
    layers = nn.Sequential(*(Idle(["drop", "act"]) for _ in range(4)))
    assert text.tree(fx_debug(layers, torch.ones(1))).splitlines()[-1] == "never called: 0…3.drop ×4, 0…3.act ×4"


def test_how_often_a_row_repeats_is_never_cut_and_wide_names_keep_the_columns():
    class Wide(nn.Module):
        def __init__(self, name):
            super().__init__()
            for i in range(6):
                self.add_module(f"{name}{i}", nn.Linear(4, 4))

        def forward(self, x):
            for layer in self.children():
                x = layer(x)
            return x

    for name in ("attention_projection_layer", "注意力投影层注意力投影层", "prójekcję\u0301_abc_e\u0301e\u0301", "層é"):
        for width in (40, 60, 80, 100):
            lines = text.tree(fx_debug(Wide(name), ones), width=width).splitlines()
            head, row = lines[1], next(line for line in lines if "×6" in line)
            assert all(cell_len(line) <= width for line in lines[:3])
            assert cell_len(row[: row.index("1×4")]) == cell_len(head[: head.index("out")])


ones = torch.ones(1, 4)


def test_in_a_kernel_of_a_notebook_a_text_is_a_text_and_shows_nothing_by_itself(monkeypatch, capsys):
    trace = fx_debug(Model(), torch.ones(1, 4))
    expected = [str(trace), str(trace.check()), trace.describe("a_part_with_a_long_name")]
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "1")  # one of the signs by which rich knows a kernel
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    assert [str(trace), str(trace.check()), trace.describe("a_part_with_a_long_name")] == expected
    assert capsys.readouterr() == ("", "")


def test_the_guides_of_deeply_nested_calls_are_no_longer_than_a_line_shows():
    model: nn.Module = nn.Linear(4, 4)
    for _ in range(60):
        model = nn.Sequential(model)
    trace = fx_debug(model, ones)
    rows = list(text._rows_with_guides(fold_repeated(trace), 40))
    assert len(rows) == 61 and max(len(lead) for _, lead in rows) <= 42
    assert max(map(cell_len, trace.text(width=40, color=False).splitlines())) <= 40


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


@pytest.mark.parametrize(
    "width, lines",
    [
        (
            100,
            [
                "id   type        out            mean    std  min  max  not finite     status",
                "#0   Sequential  float32[1, 3]  -0.5  0.707   -1    0  1 NaN          verified",
                "0#0  Log         float32[1, 3]     0      0    0    0  1 NaN, 1 −Inf  verified",
                "1#0  Tanh        float32[1, 3]  -0.5  0.707   -1    0  1 NaN          verified",
                "3 found",
            ],
        ),
        (
            44,
            [
                "id   out            mean  not finite",
                "#0   float32[1, 3]  -0.5  1 NaN",
                "0#0  float32[1, 3]     0  1 NaN, 1 −Inf",
                "1#0  float32[1, 3]  -0.5  1 NaN",
                "3 found",
            ],
        ),
    ],
)
def test_what_is_found_stands_in_columns_with_what_is_not_finite(width, lines):
    trace = fx_debug(nn.Sequential(Log(), nn.Tanh()), torch.tensor([[0.0, 1.0, -1.0]]))
    shown = text.listing(found_rows(trace, trace.calls, None, None, None), width).splitlines()
    assert [re.sub(r"(source|  \S+[.]py:\d+)$", "", line).rstrip() for line in shown] == lines
    assert text.listing([], 80) == "0 found"


def test_below_the_tree_of_a_run_that_raised_stands_where_and_what():
    with pytest.raises(RuntimeError):
        fx_debug(nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3)), torch.ones(1, 2))
    (remark,) = text.remarks(fxdebug.last_failed())
    assert re.sub(r"\(\S+:\d+\)", "(…)", remark.plain) == (
        "raised in 1 (…): RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x3)"
    )
    assert text.remarks(fx_debug(nn.Linear(2, 2), torch.ones(1, 2))) == []
