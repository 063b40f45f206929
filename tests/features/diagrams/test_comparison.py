"""A comparison as a picture: what differs is open, the rest is folded."""

from __future__ import annotations

import copy

import torch
from PIL import Image
from torch import nn

import fxdebug
from fxdebug.features.diagrams.build_drawing import drawing_of
from fxdebug.features.diagrams.comparison import drawn_of
from support.planted import net, x


def test_the_graph_opens_calls_with_findings_and_folds_the_rest(different, tmp_path):
    text = different.export(tmp_path / "x.dot").read_text(encoding="utf-8")
    assert "constant, error 0.0" in text and "weights, error 0." in text
    assert "blocks.0" in text and "blocks.2" in text  # equal, inherited
    assert text.count("penwidth=2.4") == 2
    drawn = drawn_of(different, True)
    assert len(drawn.steps) < 40
    everything = drawn_of(different, False)
    assert len(everything.steps) >= len(drawn.steps)


def test_repeated_layers_with_the_same_finding_are_drawn_once():
    one = net()
    other = copy.deepcopy(one)
    for block in other.blocks:
        block.norm.eps = 0.2
    with torch.no_grad():
        found = fxdebug.compare_models(one, other, x())
    assert [row.path for row in found.findings] == [f"blocks.{i}.norm" for i in range(6)]
    drawn = drawn_of(found, True)
    assert [box.row.name for box in drawn.root.boxes] == ["blocks.0 … blocks.5 ×6"]
    assert len(drawn.steps) < 15


def test_equal_runs_are_drawn_as_any_run_is(equal, tmp_path):
    text = equal.export(tmp_path / "x.dot").read_text(encoding="utf-8")
    assert "0 findings against a" in text
    assert len(drawn_of(equal, True).steps) == len(drawing_of(equal.b).steps)
    with Image.open(equal.export(tmp_path / "x.png")) as picture:
        assert picture.width > 200


def test_a_finding_among_layers_in_turn_is_drawn_in_its_box(tmp_path):
    def tower(eps):
        torch.manual_seed(0)
        layers = [layer for _ in range(6) for layer in (nn.LayerNorm(4), nn.ReLU())]
        layers[6].eps = eps
        return nn.Sequential(*layers)

    ramp = torch.arange(8.0).view(2, 4)
    comparison = fxdebug.compare(fxdebug.fx_debug(tower(1e-5), ramp), fxdebug.fx_debug(tower(0.5), ramp))
    text = comparison.export(tmp_path / "diff.dot").read_text()
    assert "(0, 1) … (4, 5) ×3" in text and "<B>6</B>" in text and "adds error" in text
