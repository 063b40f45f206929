"""A tower of blocks, and the DOT and SVG of a run, as text and taken apart."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch
from torch import nn

from fxdebug import Trace
from fxdebug.exports.drawing.drawing import Drawing

SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(self.norm(x))).view(-1, 8))


class Tower(nn.Module):
    """Twelve layers alike, one after the other."""

    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def dot(trace: Trace, tmp_path: Path, **options: object) -> str:
    return trace.export(tmp_path / "g.dot", **options).read_text(encoding="utf-8")


def svg(trace: Trace, tmp_path: Path, **options: object) -> ElementTree.Element:
    return ElementTree.parse(trace.export(tmp_path / "g.svg", **options)).getroot()


def texts(picture: ElementTree.Element) -> list[str]:
    """Every piece of text that can be read in a picture."""
    return [text for element in picture.iter(f"{SVG}text") if (text := "".join(element.itertext()).strip())]


def titles(drawn: Drawing, kind: str) -> list[str]:
    found = [step for step in drawn.steps.values() if step.kind == kind]
    return [step.title for step in sorted(found, key=lambda step: step.node.position)]


def fills(text: str) -> dict[str, str]:
    """Title → fill colour of the nodes of a DOT text."""
    return dict(re.findall(r'label=<<B>([\w ]+)</B>[^\n]*fillcolor="(#\w+)"', text))
