"""What is drawn of a run: parameters and leaves on request, every step with its arrows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.exports.drawing.drawing import Drawing
from fxdebug.exports.drawing.options import DrawOptions
from fxdebug.features.diagrams.build_drawing import drawing_of
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


def carried(drawn: Drawing) -> list[tuple[str, str]]:
    """Return the titles of the steps between which a turn passes something to the next."""
    titles = {id: step.title for id, step in drawn.steps.items()}
    return [(titles[arrow.source], titles[arrow.target]) for arrow in drawn.arrows if arrow.kind == "carried"]


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 4)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        c = c.sigmoid() + self.inner(torch.cat([x, h], 1)).tanh()
        return c.relu(), c


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(2, 4)
        for step in range(4):
            h, c = self.cell(x[:, step], h, c)
        return h


def test_the_state_of_a_folded_loop_goes_to_its_next_turn():
    trace = fx_debug(Recurrent(), torch.randn(2, 4, 4))
    assert carried(drawing_of(trace)) == [("add", "sigmoid"), ("relu", "cat")]
    assert carried(drawing_of(trace, DrawOptions(depth=1))) == [("cell", "cell")]
    assert carried(drawing_of(trace, DrawOptions(fold=False))) == []


class KeepsItsState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.h = nn.Linear(8, 4), torch.zeros(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.h = self.inner(torch.cat([x, self.h], 1)).tanh()
        return self.h


class Denoises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = x - 0.1 * self.net(x)
        return x


def test_so_does_a_state_in_an_attribute_and_one_that_operations_between_the_calls_make():
    kept = KeepsItsState()
    loop = Does(lambda self, x: [kept(x[:, step]) for step in range(4)][-1])
    loop.kept = kept
    assert carried(drawing_of(fx_debug(loop, torch.randn(2, 4, 4)))) == [("tanh", "cat")]
    assert carried(drawing_of(fx_debug(Denoises(), torch.randn(2, 4)))) == [("sub", "net"), ("sub", "sub")]


def test_from_one_layer_of_a_stack_to_the_next_leads_no_arrow():
    stack = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4)])
    assert carried(drawing_of(fx_debug(stack, torch.randn(2, 4)))) == []


class Returns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.same = nn.Linear(4, 4), nn.Identity()

    def forward(self, x: Tensor) -> list[Tensor]:
        y = self.first(x)
        return [y, self.same(y), self.same(y)]


def test_each_output_comes_from_the_operation_that_returned_it_though_all_are_one_tensor():
    drawn = drawing_of(fx_debug(Returns(), torch.randn(2, 4)))
    ends = [(arrow.source, drawn.steps[arrow.target].title) for arrow in drawn.arrows if "→" in arrow.target]
    assert ends == [("first#0", "[0]"), ("same#0", "[1]"), ("same#1", "[2]")]
