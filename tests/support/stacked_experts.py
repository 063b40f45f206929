"""Experts whose weights are in lists of modules, and the same ones in stacked parameters of several layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EXPERTS, HIDDEN, WIDTH, CHOSEN = 4, 8, 6, 2
X = torch.randn(30, HIDDEN, generator=torch.Generator().manual_seed(3))


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = self.gate(x).softmax(-1).topk(CHOSEN, -1)
        return weights / weights.sum(-1, keepdim=True), chosen


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(HIDDEN, WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Any:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Listed(nn.Module):
    """One module per expert."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = Router(), nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            mixed = mixed.index_add(0, row, expert(x[row]) * weights[row, place, None])
        return mixed


class Stacked(nn.Module):
    """One parameter for all experts: ``gate_up`` and ``down``.

    ``rows``: a slice has the layout of ``nn.Linear``, else it is transposed. ``way``: one expert after the other,
    ``bmm`` or ``einsum``. ``interleaved``: gate and up take turns.
    """

    def __init__(self, rows: bool, way: str, interleaved: bool = False) -> None:
        super().__init__()
        self.rows, self.way, self.interleaved = rows, way, interleaved
        self.router = Router()
        shapes = (2 * WIDTH, HIDDEN), (HIDDEN, WIDTH)
        self.gate_up, self.down = (nn.Parameter(torch.empty(EXPERTS, *(s if rows else s[::-1]))) for s in shapes)

    def activated(self, both: Tensor) -> Tensor:
        gate, up = (both[..., ::2], both[..., 1::2]) if self.interleaved else both.chunk(2, -1)
        return F.silu(gate) * up

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x)
        if self.way == "loop":
            mixed = torch.zeros_like(x)
            for number in range(EXPERTS):
                row, place = torch.where(chosen == number)
                made = self.product(self.activated(self.product(x[row], self.gate_up[number])), self.down[number])
                mixed = mixed.index_add(0, row, made * weights[row, place, None])
            return mixed
        share = torch.zeros(len(x), EXPERTS, dtype=x.dtype).scatter(-1, chosen, weights)
        if self.way == "bmm":
            one, other = (w.transpose(-1, -2) if self.rows else w for w in (self.gate_up, self.down))
            every = torch.bmm(self.activated(torch.bmm(x.expand(EXPERTS, *x.shape), one)), other)
            return (every * share.T[..., None]).sum(0)
        first, second = ("th,eoh->eto", "eti,ehi->eth") if self.rows else ("th,eho->eto", "eti,eih->eth")
        every = torch.einsum(second, self.activated(torch.einsum(first, x, self.gate_up)), self.down)
        return torch.einsum("eth,te->th", every, share)

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight) if self.rows else x @ weight


class Net(nn.Module):
    def __init__(self, make: Callable[[], nn.Module], count: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 3)
        self.layers = nn.ModuleList(make() for _ in range(count))
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(count))

    def forward(self, x: Tensor) -> Any:
        x = self.embed(x)
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x))
        return self.head(x)


def listed() -> Any:
    """A model with lists of experts."""
    model = Net(Listed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    return model


def stacked(source: Any, rows: bool, way: str, interleaved: bool = False) -> Any:
    """The same model with stacked experts."""
    model: Any = Net(lambda: Stacked(rows, way, interleaved))
    own = model.state_dict()
    with torch.no_grad():
        for name, weight in source.state_dict().items():
            if ".experts." not in name:
                own[name].copy_(weight)
        for layer, of in zip(model.layers, source.layers):
            for number, expert in enumerate(of.experts):
                gate, up, down = (x.weight for x in (expert.gate_proj, expert.up_proj, expert.down_proj))
                both = torch.stack([gate, up], 1).flatten(0, 1) if interleaved else torch.cat([gate, up])
                layer.gate_up[number] = both if rows else both.T
                layer.down[number] = down if rows else down.T
    return model
