"""Mixtures of experts that compute the same in several ways, and other models that take elements by rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, EXPERTS, CHOSEN = 8, 6, 2
IMPLEMENTATIONS = ("loop", "sorted", "dense", "grouped")


def rows(count: int = 40) -> Tensor:
    """Rows to route."""
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(5))


class Routed(nn.Module):
    """A router, experts and a head.

    ``way``: one expert after the other on the rows that chose it, each on all rows, or on rows sorted by expert.
    ``ties``: two experts have a twin with the same weights, and a router that can hardly tell them apart. ``offset``
    is added and subtracted again, so that results are rounded as larger numbers are.
    """

    def __init__(self, way: str, *, ties: bool = False, offset: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way, self.offset = way, offset
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.head = nn.Linear(WIDTH, 3)
        if ties:
            with torch.no_grad():
                self.gate.weight[3], self.gate.weight[4] = self.gate.weight[1] * (1 + 1e-7), self.gate.weight[0]
            self.experts[3].load_state_dict(self.experts[1].state_dict())
            self.experts[4].load_state_dict(self.experts[0].state_dict())

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x).softmax(-1)
        if self.way == "sorted":
            weights, chosen = (side[..., :CHOSEN] for side in scores.sort(dim=-1, descending=True))
        else:
            weights, chosen = scores.topk(CHOSEN, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        mixed: Tensor = getattr(self, {"sorted": "loop"}.get(self.way, self.way))(x, chosen, weights, scores)
        result: Tensor = self.head(mixed)
        return result

    def rounded(self, x: Tensor) -> Tensor:
        return x + self.offset - self.offset

    def loop(self, x: Tensor, chosen: Tensor, weights: Tensor, scores: Tensor) -> Tensor:
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            mixed = mixed.index_add(0, row, self.rounded(expert(x[row])) * weights[row, place, None])
        return mixed

    def dense(self, x: Tensor, chosen: Tensor, weights: Tensor, scores: Tensor) -> Tensor:
        share = torch.zeros_like(scores).scatter(-1, chosen, weights)
        every = self.rounded(torch.stack([expert(x) for expert in self.experts], 1))
        return (every * share[..., None]).sum(1)

    def grouped(self, x: Tensor, chosen: Tensor, weights: Tensor, scores: Tensor) -> Tensor:
        ordered, order = chosen.reshape(-1).sort()
        given = x[order // CHOSEN]
        parts = [expert(given[ordered == number]) for number, expert in enumerate(self.experts)]
        made = self.rounded(torch.cat(parts)) * weights.reshape(-1)[order, None]
        return torch.zeros_like(x).index_add(0, order // CHOSEN, made)


class SortedAndBack(nn.Module):
    """Rows in the order of a score, which several of them share, and back."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way, self.score, self.layer = way, nn.Linear(WIDTH, 1), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        score = self.score(x)[..., 0]
        order = {
            "argsort": lambda: score.argsort(-1),
            "sort": lambda: score.sort(-1).indices,
            "topk": lambda: score.topk(score.shape[-1], -1, largest=False).indices,
        }[self.way]()
        made = F.gelu(self.layer(x.gather(1, order[..., None].expand_as(x))))
        return made.gather(1, order.argsort(-1)[..., None].expand_as(made))


class Codebook(nn.Module):
    """The nearest entry of a book in which each entry stands twice."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way, self.before, self.after = way, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)
        self.book = nn.Parameter(torch.randn(10, WIDTH).repeat(2, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        nearest = {
            "norm": lambda: (x.unsqueeze(-2) - self.book).norm(dim=-1).argmin(-1),
            "product": lambda: (x @ self.book.T - 0.5 * self.book.pow(2).sum(-1)).argmax(-1),
            "max": lambda: (-(x.unsqueeze(-2) - self.book).pow(2).sum(-1)).max(-1).indices,
        }[self.way]()
        result: Tensor = self.after(self.book[nearest])
        return result


class BestOfTwins(nn.Module):
    """Scores and the best class, where each class has a twin with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(WIDTH, 16)
        with torch.no_grad():
            self.layer.weight[8:], self.layer.bias[8:] = self.layer.weight[:8].clone(), self.layer.bias[:8].clone()

    def forward(self, x: Tensor) -> Any:
        scores = self.layer(x)
        return scores, scores.argmax(-1)
