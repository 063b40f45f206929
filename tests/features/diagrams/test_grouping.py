"""What is folded in a drawing: repeated layers, deep calls, rows of rearrangements."""

from __future__ import annotations

import math
import re

import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.exports.drawing.drawing import Box, Drawing
from fxdebug.exports.drawing.options import DrawOptions
from fxdebug.features.diagrams.build_drawing import drawing_of
from support.drawn import Tower, dot, fills, svg, texts, titles
from support.trees import Does, ones


def test_repeated_layers_are_one_box(tower):
    drawn = drawing_of(tower)
    assert [(box.row.name, box.row.repeats) for box in drawn.root.boxes] == [("layers.0 … layers.11 ×12", 12)]
    assert titles(drawn, "call") == ["norm", "a", "b", "head"]
    assert titles(drawn, "op") == ["relu", "add"]
    assert titles(drawn, "input") == ["x"] and titles(drawn, "output") == ["output"]


def test_what_is_said_of_a_repeated_layer_is_over_all_its_repetitions(tower):
    (relu,) = [step for step in drawing_of(tower).steps.values() if step.title == "relu"]
    assert len(relu.values) == 12 and relu.stats.count == 12 * 3 * 8
    assert relu.stats.max == max(node.stats.max for node in tower.ops("relu"))


def test_without_folding_every_layer_has_a_box(tower):
    drawn = drawing_of(tower, DrawOptions(fold=False, depth=9))
    assert [box.row.name for box in drawn.root.boxes] == [f"layers.{i}" for i in range(12)]
    assert titles(drawn, "op").count("relu") == 12


def test_depth_closes_calls_and_what_is_closed_says_how_often_it_repeats(tower, tmp_path):
    assert titles(drawing_of(tower, DrawOptions(depth=1)), "call") == ["layers.0 … layers.11 ×12", "head"]
    closed = drawing_of(tower, DrawOptions(depth=0))
    assert [(arrow.source, arrow.target) for arrow in closed.arrows] == [
        ("Tower#0/x", "Tower#0"),
        ("Tower#0", "Tower#0→"),
    ]
    assert "calls 1 levels down are closed" in dot(tower, tmp_path, depth=1)
    assert texts(svg(tower, tmp_path, depth=0, layout="dot"))[0] == "Tower"


def test_an_unasked_depth_is_one_that_can_be_read():
    class Wide(nn.Module):
        def __init__(self, level: int) -> None:
            super().__init__()
            parts = [nn.Linear(4, 4, bias=i % 2 == 0) if level == 0 else Wide(level - 1) for i in range(6)]
            self.parts = nn.ModuleList(parts)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i, part in enumerate(self.parts):
                x = part(x) * i if i % 2 else part(x) + torch.ones(4)  # no two neighbours do the same
            return x

    trace = fx_debug(Wide(2), ones(), weights=False)
    assert len(trace.calls) == 6**3 + 6**2 + 6 + 1
    assert len(drawing_of(trace).steps) < 100 < len(drawing_of(trace, DrawOptions(depth=9, fold=False)).steps)


def test_a_row_of_rearrangements_is_one_step_and_none_of_it_is_lost_with_everything():
    trace = fx_debug(Does(lambda self, x: x.view(2, 2).transpose(0, 1).contiguous() + 1), ones())
    assert titles(drawing_of(trace), "arranging") == ["view · transpose · contiguous"]
    whole = drawing_of(trace, DrawOptions(everything=True))
    assert titles(whole, "op") == ["view", "transpose", "contiguous", "add"]


def test_nan_is_red_from_where_it_began_and_folding_stops_there(tmp_path):
    model = Tower()
    with torch.no_grad():
        model.layers[7].b.weight[0, 0] = math.nan
    trace = fx_debug(model, ones())
    drawn = drawing_of(trace)
    assert [box.row.name for box in drawn.root.boxes] == [
        "layers.0 … layers.6 ×7",
        "layers.7",
        "layers.8 … layers.11 ×4",
    ]
    bad = [step for step in drawn.steps.values() if step.stats.nan]
    assert min(bad, key=lambda step: step.node.position).id == "layers.7.b#0"
    text = dot(trace, tmp_path)
    assert (fills(text)["a"], fills(text)["head"]) == ("#f7c6c5", "#f7c6c5")  # the a of the last box
    drawn_red = text.count('color="#c62828"')  # the frame; the output is not filled
    assert drawn_red == len(bad) == 10  # b and add; norm, a, relu, b, add and the view; head, output
    assert "NaN or Inf" in text and "1 NaN" in text


def test_a_graph_of_thousands_of_nodes_is_drawn_at_the_depth_that_is_asked(tmp_path):
    trace = fx_debug(Tower(400), ones(), weights=False)
    assert len(trace.graph) > 8_000
    text = dot(trace, tmp_path, depth=1, fold=False)
    assert text.count("Block<BR/>") == 400
    assert titles(drawing_of(trace), "call") == ["norm", "a", "b", "head"]  # folded, the whole of it


# Repeated groups and loops -----------------------------------------------------------------------


def boxes(drawn: Drawing) -> dict[str, list[str]]:
    """The titles in every box, in execution order."""
    found: dict[str, list[str]] = {}
    pending: list[Box] = [] if drawn.root is None else [drawn.root]
    while pending:
        box = pending.pop()
        found[box.row.name] = [step.title for step in sorted(box.steps, key=lambda step: step.node.position)]
        pending.extend(box.boxes)
    return found


def arrows(drawn: Drawing) -> set[tuple[str, str]]:
    return {(drawn.steps[arrow.source].title, drawn.steps[arrow.target].title) for arrow in drawn.arrows}


def test_layers_in_turn_are_drawn_in_a_box_in_the_order_in_which_they_ran(tmp_path):
    layers = [layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.ReLU())]
    trace = fx_debug(nn.Sequential(*layers, nn.Linear(4, 2)), ones())
    drawn = drawing_of(trace)
    assert boxes(drawn) == {"Sequential": ["12"], "(0, 1) … (10, 11) ×6": ["0 … 10", "1 … 11"]}
    ends = {("input", "0 … 10"), ("12", "output")}
    assert arrows(drawn) == {("0 … 10", "1 … 11"), ("1 … 11", "12"), *ends}
    assert "(0, 1) … (10, 11) ×6" in texts(svg(trace, tmp_path, layout="dot"))
    assert [len(step.twins) for step in drawn.steps.values() if step.kind == "call"] == [1, 6, 6]


def loops(kind):
    def head(self, x):
        hidden = torch.zeros(1, 4)
        for i in range(5):
            hidden = self.cell(x[:, i], hidden)
        return hidden

    def tail(self, x):
        x = x[:, 0] + 1
        for part in (self.p0, self.p1, self.p2, self.p3):
            x = x + part(x)
        return x

    def inside(self, x):
        x = x[:, 0]
        for part in (self.p0, self.p1, self.p2, self.p3):
            x = self.norm(part(x).exp()).sin().cos()
        return x * 2

    def growing(self, x):
        x = x[:, 0]
        for i, part in enumerate((self.p0, self.p1, self.p2, self.p3)):
            x = part(x).exp() if i % 2 else part(x).sin()
        return x

    parts = {f"p{i}": nn.Linear(4, 4) for i in range(4)} | {"norm": nn.LayerNorm(4), "cell": nn.GRUCell(4, 4)}
    forward = {"head": head, "tail": tail, "inside": inside, "growing": growing}[kind]
    return fx_debug(Does(forward, **parts), torch.ones(1, 5, 4))


def test_operations_of_a_loop_are_drawn_once_with_the_calls_around_them():
    drawn = drawing_of(loops("head"))
    assert boxes(drawn) == {"Does": ["zeros"], "cell ×5": ["getitem", "cell"]}
    (taken,) = [step for step in drawn.steps.values() if step.title == "getitem"]
    assert len(taken.twins) == 5 and not taken.same_arguments  # x[:, 0] … x[:, 4]
    drawn = drawing_of(loops("inside"))
    group = boxes(drawn)
    assert group.pop("Does") == ["getitem", "mul"] and list(group.values()) == [
        ["p0 … p3", "exp", "norm", "sin", "cos"]
    ]
    assert ("cos", "mul") in arrows(drawn) and ("cos", "p0 … p3") not in arrows(drawn)
    drawn = drawing_of(loops("tail"))
    assert boxes(drawn) == {"Does": ["getitem", "add"], "p0 … p3 ×4": ["p0 … p3", "add"]}


def test_what_is_not_the_same_in_every_turn_stays_as_it_ran():
    titles = boxes(drawing_of(loops("growing")))["Does"]
    assert titles == ["getitem", "p0 … p3 ×4", "sin", "exp", "sin", "exp"]

    def forward(self, x):
        for i in range(5):
            x = self.a(x) / (0 if i == 2 else 1)
        return x

    drawn = drawing_of(fx_debug(Does(forward, a=nn.Linear(4, 4)), ones()))
    assert boxes(drawn) == {"Does": ["div", "a", "div", "a", "div"], "a ×3": ["a", "div ×2"]}  # the third is infinite


def test_the_index_of_a_loop_is_not_shown_as_if_it_were_always_the_first(tmp_path):
    text = dot(loops("head"), tmp_path)
    assert "getitem</B><BR/>" in text and "[:, 0]" not in re.sub(r"tooltip=.*", "", text)


def test_a_growing_cache_is_one_arrow_with_the_range_of_its_sizes(tmp_path):
    def forward(self, x):
        cache = {}
        for _ in range(4):
            x = self.step(x, cache=cache)
        return x

    def step(self, x, cache):
        cache["x"] = torch.cat([*cache.values(), self.a(x)])
        return (cache["x"] * 2).sum(0, keepdim=True)

    model = Does(forward, step=Does(step, a=nn.Linear(4, 4)))
    drawn = drawing_of(fx_debug(model, ones()))
    assert "step · step 1 … 3 · decode ×3" in boxes(drawn)
    into = [arrow for arrow in drawn.arrows if drawn.steps[arrow.target].title == "mul"]
    assert [list(arrow.shapes) for arrow in into] == [[(1, 4)], [(2, 4), (3, 4), (4, 4)]]
    assert "2…4×4" in dot(fx_debug(model, ones()), tmp_path)
