"""The picture of a run: what is drawn, what it says, and that a real program draws it whatever things are called."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.errors import UsageError
from fxdebug.exports.graphviz.drawing import drawing
from support.drawn import Tower, dot, titles
from support.trees import Does, linear, ones


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


def test_everything_draws_parameters_and_the_inside_of_leaves():
    trace = fx_debug(nn.Sequential(linear()), ones())
    assert titles(drawing(trace), "op") == []
    assert titles(drawing(trace, leaves=True), "op") == ["linear"]
    whole = drawing(trace, everything=True)
    assert titles(whole, "op") == ["get_attr", "get_attr", "linear"]
    assert titles(whole, "input") == ["input"] and titles(whole, "output") == ["output"]


def test_x_plus_x_is_drawn_with_its_shape_once_an_arrow():
    drawn = drawing(fx_debug(Does(lambda self, x: x + x), ones()))
    assert [(arrow.source, arrow.target, arrow.kind) for arrow in drawn.arrows] == [
        ("Does#0/arg0", "Does#0/add", "data"),
        ("Does#0/add", "Does#0→", "data"),
    ]


def test_every_drawn_step_but_an_unused_one_has_an_arrow(tower):
    drawn = drawing(tower)
    ends = {end for arrow in drawn.arrows for end in (arrow.source, arrow.target)}
    assert ends == set(drawn.steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"color": "meen"}, "color='meen': use one of status, mean, .* Did you mean 'mean'"),
        ({"rankdir": "UP"}, r"rankdir='UP': use TB \(downwards\) or LR"),
        ({"deep": 2}, "has no option 'deep'; it has depth, fold"),
    ],
)
def test_an_option_that_cannot_be_meant_is_an_error(tower, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        tower.export(tmp_path / "g.svg", **options)
