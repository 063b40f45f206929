"""A small transformer to step through, with faults that can be switched on; and scripted sessions of the console."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug import Trace, fx_debug
from fxdebug.features.console import all_commands
from fxdebug.features.console.input.prompt import run_lines
from fxdebug.features.console.recorded import RecordedMachine
from fxdebug.features.console.session import Session

assert all_commands.__all__  # registers them


class Attention(nn.Module):
    def __init__(self, masked: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.proj = nn.Linear(8, 8)
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / 8**0.5
        if self.masked:  # every key of the last row
            scores = scores.masked_fill(torch.eye(4)[3, :, None] > 0, float("-inf"))
        probs = scores.softmax(-1)
        return self.proj(probs @ v)


class Block(nn.Module):
    def __init__(self, masked: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attn = Attention(masked)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Tiny(nn.Module):
    """Two blocks and a head; ``masked``: a row of the second attention has nothing to look at, and becomes NaN."""

    def __init__(self, masked: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 8)
        self.h = nn.ModuleList([Block(), Block(masked)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.embed(x)
        for block in self.h:
            x = block(x)
        return {"logits": self.head(x), "hidden": x}


class Counter(nn.Module):
    """Writes to a buffer in place, twice; raises after that where ``raises``."""

    def __init__(self, raises: bool = False) -> None:
        super().__init__()
        self.raises = raises
        self.act = nn.ReLU()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        y = self.act(x)
        self.total.add_(y)
        y = y * 2
        if self.raises:
            y = y.view(7, 7)
        return y + self.total


def tiny(masked: bool = False, **options: Any) -> Trace:
    torch.manual_seed(0)
    model = Tiny(masked).eval()
    with torch.no_grad():
        for block in model.h:
            block.norm.bias.fill_(0.25)  # so that no mean is rounding alone
        return fx_debug(model, torch.linspace(-1, 1, 12).view(1, 4, 3), **options)


def counter(**options: Any) -> Trace:
    with torch.no_grad():
        return fx_debug(Counter(), torch.tensor([-1.0, 2.0, 3.0]), **options)


class Screen:
    """A session whose screen is kept: ``type`` returns what the lines put on it."""

    def __init__(self, trace: Any, **options: Any) -> None:
        self.machine = RecordedMachine(trace)
        self._written: list[str] = []
        self.session = Session(self.machine, self._written.append, **options)

    def type(self, *lines: str) -> str:
        self._written.clear()
        for line in lines:
            self.session.run_line(line)
        return "".join(self._written)

    def script(self, lines: Iterable[str]) -> str:
        """The screen with the prompt and every line that is typed."""
        self._written.clear()
        self.session.show_stop()
        run_lines(self.session, lines)
        return "".join(self._written)

    @property
    def place(self) -> str:
        """Where the machine stands: the kind of stop and its id."""
        return f"{self.machine.stop.kind} {self.machine.stop.id}"
