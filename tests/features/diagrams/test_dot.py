"""The DOT text of a run: the same for a run and for what was loaded of it."""

from __future__ import annotations

import re

import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from support.drawn import Tower, dot
from support.trees import ones


class Halves(nn.Module):
    """Numbers that are the same on every machine."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(2, 2, bias=False)
        self.twice.weight = nn.Parameter(torch.tensor([[1.0, -1.0], [0.5, 0.0]]))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.twice(x).transpose(0, 1).unsqueeze(0)
        return y.masked_fill(mask, -1.0)


# The text ----------------------------------------------------------------------------------------


def test_the_dot_text_of_a_small_model(tmp_path, golden):
    trace = fx_debug(Halves(), (torch.tensor([[2.0, 1.0]]), torch.tensor([True, False]).view(2, 1)))
    golden("drawing.dot", re.sub(r"(?<=\\n)/[^\"\\]*/(\w+\.py):\d+", r"\1:…", dot(trace, tmp_path)))


def test_a_loaded_trace_is_drawn_as_the_one_that_ran(tmp_path):
    trace = fx_debug(Tower(), ones(), save=tmp_path / "run")
    assert dot(fxdebug.load(tmp_path / "run"), tmp_path) == dot(trace, tmp_path)
