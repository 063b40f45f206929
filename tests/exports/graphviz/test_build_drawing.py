"""What is drawn of a run: parameters and leaves on request, every step with its arrows."""

from __future__ import annotations

from torch import nn

from fxdebug import fx_debug
from fxdebug.exports.graphviz.build_drawing import drawing_of
from fxdebug.exports.graphviz.options import DrawOptions
from support.drawn import titles
from support.trees import Does, linear, ones


def test_everything_draws_parameters_and_the_inside_of_leaves():
    trace = fx_debug(nn.Sequential(linear()), ones())
    assert titles(drawing_of(trace), "op") == []
    assert titles(drawing_of(trace, DrawOptions(leaves=True)), "op") == ["linear"]
    whole = drawing_of(trace, DrawOptions(everything=True))
    assert titles(whole, "op") == ["get_attr", "get_attr", "linear"]
    assert titles(whole, "input") == ["input"] and titles(whole, "output") == ["output"]


def test_x_plus_x_is_drawn_with_its_shape_once_an_arrow():
    drawn = drawing_of(fx_debug(Does(lambda self, x: x + x), ones()))
    assert [(arrow.source, arrow.target, arrow.kind) for arrow in drawn.arrows] == [
        ("Does#0/arg0", "Does#0/add", "data"),
        ("Does#0/add", "Does#0→", "data"),
    ]


def test_every_drawn_step_but_an_unused_one_has_an_arrow(tower):
    drawn = drawing_of(tower)
    ends = {end for arrow in drawn.arrows for end in (arrow.source, arrow.target)}
    assert ends == set(drawn.steps)
