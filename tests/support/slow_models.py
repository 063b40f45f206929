"""Models with one cause that makes them slow, each with a twin without it; and models that are tuned already."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Slow:
    """A slow model: ``build(fixed)`` returns the model, its inputs, a loss or ``None``, an optimizer or ``None``.

    ``threads`` are those that the slow one runs with. ``rules`` are the findings of a profile that name its cause,
    ``changes`` the trials of ``tune`` that remove it. ``around`` is set for its runs. ``left`` are
    findings that are true of the twin, too.
    """

    build: Callable[[bool], tuple[nn.Module, tuple[Any, ...], Any, Any]]
    rules: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    threads: int = 1
    around: Callable[[bool], AbstractContextManager[Any]] = lambda _: nullcontext()
    left: tuple[str, ...] = ()


class Attention(nn.Module):
    def __init__(self, width: int, fixed: bool) -> None:
        super().__init__()
        self.fixed, self.qkv, self.out = fixed, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fixed:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v
        return x + self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def attention(fixed: bool) -> Any:
    return nn.Sequential(Attention(64, fixed), Attention(64, fixed)).eval(), (torch.randn(1, 768, 64),), None, None


class Wide(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.kind = torch.float32 if fixed else torch.float64
        self.up, self.down = nn.Linear(256, 512), nn.Linear(512, 256)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.ones(512, 512, dtype=self.kind) / 512
        h = torch.relu(self.up(x)).to(self.kind) @ scale @ scale @ scale
        return self.down(h.float())  # type: ignore[no-any-return]


def wide(fixed: bool) -> Any:
    return Wide(fixed).eval(), (torch.randn(256, 256),), None, None


class Reads(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed, self.layer = fixed, nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.layer(x))
        if self.fixed:
            return h * (h.amax(-1, keepdim=True) > 0.5)
        kept = [row if row.max().item() > 0.5 else torch.zeros_like(row) for row in h]
        return torch.stack(kept)


def reads(fixed: bool) -> Any:
    return Reads(fixed).eval(), (torch.randn(256, 64),), None, None


class Experts(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed, self.gate = fixed, nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).argmax(-1)
        if not self.fixed:
            return torch.stack([self.experts[int(chosen[row])](x[row]) for row in range(len(x))])
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (rows,) = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(x[rows]))
        return out


def experts(fixed: bool) -> Any:
    return Experts(fixed).eval(), (torch.randn(256, 64),), None, None


class Copies(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.mixes = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for mix in self.mixes:
            if not self.fixed:
                x = x.transpose(1, 2).contiguous().transpose(1, 2).contiguous().clone()
            x = torch.relu(mix(x))
        return x


def copies(fixed: bool) -> Any:
    return Copies(fixed).eval(), (torch.randn(16, 512, 32),), None, None


def channels(fixed: bool) -> Any:
    layers = [nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.Conv2d(32, 32, 1), nn.ReLU()]
    model, x = nn.Sequential(*layers, *layers).eval(), torch.randn(4, 32, 64, 64)
    if fixed:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model, (x,), None, None


class Steps(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.whole = nn.LSTM(32, 32, batch_first=True) if fixed else None
        self.cell = None if fixed else nn.LSTMCell(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        if self.whole is not None:
            return self.whole(x)[0]  # type: ignore[no-any-return]
        assert self.cell is not None
        h = c = x.new_zeros(x.shape[0], 32)
        out = []
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
            out.append(h)
        return torch.stack(out, 1)


def steps(fixed: bool) -> Any:
    return Steps(fixed).eval(), (torch.randn(4, 64, 32),), None, None


def optimizer(fixed: bool) -> Any:
    model = nn.Sequential(*[nn.Linear(24, 24) for _ in range(40)])
    make = lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, foreach=fixed, fused=None)  # noqa: E731
    return model, (torch.randn(4, 24),), lambda out: out.square().mean(), make


def threads(fixed: bool) -> Any:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]).eval()
    return model, (torch.randn(32, 64),), None, None


class Embeds(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(200_000, 32, sparse=fixed), nn.Linear(32, 4)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.table(words).mean(1))  # type: ignore[no-any-return]


def embeds(fixed: bool) -> Any:
    return Embeds(fixed), (torch.randint(0, 200_000, (8, 16)),), lambda out: out.square().mean(), None


class Recomputes(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.use_checkpoint = not fixed
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.use_checkpoint else block(x))  # type: ignore[operator]
        return x


def recomputes(fixed: bool) -> Any:
    return Recomputes(fixed), (torch.randn(256, 128),), lambda out: out.square().mean(), None


class Elementwise(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.times, self.layer = 1 if fixed else 8, nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        for _ in range(self.times):
            h = h * 1.01 + torch.sigmoid(h) * 0.3 - h.square() * 0.001
        return h  # type: ignore[no-any-return]


def elementwise(fixed: bool) -> Any:
    return Elementwise(fixed).eval(), (torch.randn(2048, 64),), None, None


class Sums(nn.Module):
    """A model that sums up a loss of its own: with its graph, or without."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed, self.total = fixed, torch.zeros(())
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        size = x[:, 0].mean()
        self.total = self.total + (size.detach() if self.fixed else size)
        return x


def kept_graph(fixed: bool) -> Any:
    return Sums(fixed), (torch.randn(256, 64),), lambda out: out.square().mean(), None


class Sentences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.last = nn.Embedding(500, 64), Attention(64, True), nn.Linear(64, 64)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        x = torch.relu(self.last(self.words(words))) * mask[..., None]
        return x.sum(1) / mask.sum(1, keepdim=True)  # type: ignore[no-any-return]


def padding(fixed: bool) -> Any:
    length = 20 if fixed else 512
    mask = (torch.arange(length)[None] < torch.tensor([9, 20, 14, 5])[:, None]).long()
    return Sentences().eval(), (torch.randint(1, 500, (4, length)) * mask, mask), None, None


SLOW = {
    "eager attention": Slow(attention, ("eager attention",)),
    "float64": Slow(wide, ("float64",)),
    "a sync in a loop": Slow(reads, ("reads numbers", "row by row")),
    "one-row expert calls": Slow(experts, ("row by row",)),
    "contiguous copies": Slow(copies, ("copies",)),
    "channels order": Slow(channels, (), ("channels last",)),
    "a loop over time": Slow(steps, ("loop over time",)),
    "an optimizer for each parameter": Slow(optimizer, (), ("foreach optimizer", "fused optimizer")),
    "more threads than cores": Slow(threads, ("threads",), ("1 thread", "2 threads"), threads=8),
    "a dense gradient": Slow(embeds, ("dense gradient",), ("sparse gradients",)),
    "recomputation": Slow(recomputes, ("recomputation",), ("no recomputation",)),
    "passes over memory": Slow(elementwise, (), ("compile",)),
    "a retained graph": Slow(kept_graph, ("kept graph",)),
    "padding": Slow(padding, ("padding",), ("inputs cut from 512 to 20 steps",)),
}


# Tuned ones --------------------------------------------------------------------------------------


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(96, 192), nn.Linear(96, 192), nn.Linear(192, 96)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


def _tuned() -> dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]]:
    return {
        "perceptron": lambda: (nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)), (torch.randn(64, 64),)),
        "fused attention": lambda: (nn.Sequential(Attention(64, True), Attention(64, True)), (torch.randn(2, 64, 64),)),
        "gated": lambda: (nn.Sequential(*[Gated() for _ in range(3)]), (torch.randn(4, 32, 96),)),
        "whole sequence": lambda: (Steps(True), (torch.randn(4, 64, 32),)),
        "grouped experts": lambda: (Experts(True), (torch.randn(256, 64),)),
        "convolutions": lambda: (
            nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            (torch.randn(2, 3, 32, 32),),
        ),
    }


TUNED = _tuned()
