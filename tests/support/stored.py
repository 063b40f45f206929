"""A small model, and what a run of it leaves in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from fxdebug import Trace, fx_debug
from zoo import zoo_sample

SHARD = "tensors-0001.safetensors"


class Small(nn.Module):
    """Two inputs, a layer called twice, a container, several outputs of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.runs = 0

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Any:
        self.runs += 1
        hidden = self.layer(self.layer(x)) * scale
        return {"logits": self.block(hidden), "hidden": (hidden, None, "text", 1 + 2j, float("nan"))}


def run(model: nn.Module, rows: int = 1, **options: Any) -> Trace:
    return fx_debug(model, torch.arange(4.0 * rows).view(rows, 4), {"scale": 0.5}, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


PLAIN = [entry for entry in zoo_sample.entries(False) if not entry[0].startswith(("hf/", "scale/", "modes/"))]
