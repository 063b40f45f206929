"""twitter/the-algorithm-ml#136: the MLP keeps its layers in a python list, so they are not registered.

A click ranker: categorical embeddings and dense features through a narrow MLP.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 250
HISTORY: list[float] = []
BATCH, AUTHORS, DENSE = 128, 20, 8


class Mlp(nn.Module):
    def __init__(self, in_features: int, layer_sizes: list[int], registered: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size in layer_sizes:
            layers += [nn.Linear(in_features, size), nn.ReLU()]
            in_features = size
        self.layers = nn.ModuleList(layers) if registered else layers

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Ranker(nn.Module):
    def __init__(self, registered: bool) -> None:
        super().__init__()
        self.author = nn.Embedding(AUTHORS, 4)
        self.mlp = Mlp(DENSE + 4, [16, 8, 3], registered)
        self.logit = nn.Linear(3, 1)

    def forward(self, dense: Tensor, author: Tensor) -> Tensor:
        return self.logit(self.mlp(torch.cat([dense, self.author(author)], dim=1))).squeeze(1)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(51)
    HISTORY.clear()
    w1, w2, fame = torch.randn(DENSE), torch.randn(DENSE), torch.randn(AUTHORS)
    model = Ranker(registered=not bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(i: int) -> None:
        dense, author = torch.randn(BATCH, DENSE), torch.randint(0, AUTHORS, (BATCH,))
        clicked = ((dense @ w1).abs() - (dense @ w2).abs() + fame[author] > 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(dense, author), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
