"""AdeelH/pytorch-multi-class-focal-loss#10: focal loss for shares of 90, 6, 2 and 2 percent, weighted inversely.

The loss is tiny from the first step and the weights of the common class are ten times smaller; both are meant.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class FocalLoss(nn.Module):
    def __init__(self, alpha: torch.Tensor, gamma: float) -> None:
        super().__init__()
        self.register_buffer("alpha", alpha)
        self.gamma = gamma

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_p = F.log_softmax(x, dim=-1)
        log_pt = log_p.gather(1, y[:, None]).squeeze(1)
        focal = (1 - log_pt.exp()) ** self.gamma
        return (-self.alpha[y] * focal * log_pt).mean()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(23)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(24)
    share = torch.tensor([0.90, 0.06, 0.02, 0.02])
    centres = 1.6 * torch.randn(4, 8, generator=generator)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
    criterion = FocalLoss(alpha=1.0 - share, gamma=2.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)

    def draw(weights: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.multinomial(weights, batch, replacement=True, generator=generator)
        return centres[y] + torch.randn(batch, 8, generator=generator), y

    even_x, even_y = draw(torch.ones(4), 200)

    def step(i: int) -> None:
        x, y = draw(share, 256)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            LOG.append(F.cross_entropy(model(even_x), even_y).item())

    return model, optimizer, step
