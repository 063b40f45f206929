"""The drawing of a call tree in little room, and what it says of modules that were not called."""

from __future__ import annotations

import re

import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.exports import text


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
