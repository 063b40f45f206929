"""A comparison as a picture in the layout of the page: what differs is open and named."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.errors import UsageError

TEXT = "{http://www.w3.org/2000/svg}text"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(self.norm(x)).relu()


@pytest.fixture(scope="module")
def different() -> fxdebug.Comparison:
    """Of six blocks the third has another constant."""
    torch.manual_seed(0)
    one = nn.Sequential(*[Block() for _ in range(6)])
    other = copy.deepcopy(one)
    other[2].norm.eps = 0.5
    x = torch.randn(3, 8)
    with torch.no_grad():
        return fxdebug.compare(fxdebug.fx_debug(one, x), fxdebug.fx_debug(other, x))


def texts(path: Path) -> list[str]:
    return [element.text or "" for element in ET.parse(path).iter(TEXT)]


def test_the_layer_that_adds_error_is_apart_open_and_named(different: fxdebug.Comparison, tmp_path: Path) -> None:
    shown = texts(different.export(tmp_path / "diff.svg"))
    assert [text for text in shown if text in ("0…1", "2", "3…5")] == ["0…1", "2", "3…5"]
    assert "layer_norm" in shown and "constant" in shown  # open down to the operation
    assert "mix" in shown and shown.count("add") == 1  # the other blocks are closed
    assert "adds error" in shown and "1 finding against a" in shown
    assert any("eps=1e-05 in a, eps=0.5 in b" in text for text in shown)
    error = next(row for row in different.findings).error
    assert f"error {error:.3g}" in shown


def test_equal_runs_are_drawn_as_any_run_is(different: fxdebug.Comparison, tmp_path: Path) -> None:
    equal = fxdebug.compare(different.a, different.a)
    shown = texts(equal.export(tmp_path / "equal.svg"))
    assert "0…5" in shown and "0 findings against a" in shown and "equal" in shown


def test_repetitions_are_apart_where_that_is_asked_for(different: fxdebug.Comparison, tmp_path: Path) -> None:
    shown = texts(different.export(tmp_path / "apart.svg", fold=False))
    assert {"0", "1", "2", "3", "4", "5"} <= set(shown)


def test_both_themes_and_a_png(different: fxdebug.Comparison, tmp_path: Path) -> None:
    papers = [different.export(tmp_path / f"{theme}.svg", theme=theme).read_text() for theme in ("light", "dark")]
    assert 'fill="#f7f8fa"' in papers[0] and 'fill="#12151a"' in papers[1]
    assert different.export(tmp_path / "diff.png").read_bytes().startswith(b"\x89PNG")


def test_graphviz_draws_it_where_that_is_asked_for(different: fxdebug.Comparison, tmp_path: Path) -> None:
    assert "graphviz" in different.export(tmp_path / "dot.svg", layout="dot").read_text().lower()
    with pytest.raises(UsageError, match="Graphviz draws no dark pictures"):
        different.export(tmp_path / "dark.svg", layout="dot", theme="dark")
