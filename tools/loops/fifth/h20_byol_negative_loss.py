"""sthalles/PyTorch-BYOL#5: the loss is a negative number, about -3.5 after training; it is minus two cosines.

The target network has no optimizer and follows by a moving average, and there are no negative pairs.
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 240
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class MLPHead(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, outputs)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class OnlineNetwork(nn.Module):
    def __init__(self, inputs: int = 16, width: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))
        self.projection = MLPHead(width, 48, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.projection(self.encoder(x))


def regression_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -2 * F.cosine_similarity(x, y, dim=1)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(19)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(20)
    online = OnlineNetwork()
    model = nn.ModuleDict({"online": online, "predictor": MLPHead(16, 48, 16)})
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=4e-4)
    centres = 1.5 * torch.randn(6, 16, generator=generator)
    momentum = 0.97

    def two_views(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        thing = centres[torch.randint(0, 6, (batch,), generator=generator)]
        thing = thing + 0.5 * torch.randn(batch, 16, generator=generator)
        first = thing + 0.4 * torch.randn(batch, 16, generator=generator)
        return first, thing + 0.4 * torch.randn(batch, 16, generator=generator)

    def step(i: int) -> None:
        view_1, view_2 = two_views(64)
        predicted_1 = model["predictor"](online(view_1))
        predicted_2 = model["predictor"](online(view_2))
        with torch.no_grad():
            goal_2, goal_1 = target(view_1), target(view_2)
        loss = (regression_loss(predicted_1, goal_1) + regression_loss(predicted_2, goal_2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.mul_(momentum).add_(fast, alpha=1 - momentum)
        LOG.append(loss.item())

    return model, optimizer, step
