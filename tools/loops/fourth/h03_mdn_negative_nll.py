"""cpmpercussion/keras-mdn-layer#15: the loss of a mixture density network turns negative, which is no fault.

Densities may be above one; the sharper the components become, the lower the loss goes.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 300
HISTORY: list[float] = []
BATCH, MIXES = 128, 3


class Mdn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.pi = nn.Linear(32, MIXES)
        self.mu = nn.Linear(32, MIXES)
        self.sigma = nn.Linear(32, MIXES)

    def forward(self, x: Tensor) -> torch.distributions.Distribution:
        h = self.hidden(x)
        sigma = nn.functional.elu(self.sigma(h)) + 1 + 1e-3
        parts = torch.distributions.Normal(self.mu(h), sigma)
        return torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=self.pi(h)), parts)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(3)
    HISTORY.clear()
    model = Mdn()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(i: int) -> None:
        x = torch.rand(BATCH, 1) * 2 - 1
        branch = torch.randint(0, 2, (BATCH,)).float() * 2 - 1
        y = branch * (0.3 + 0.2 * torch.sin(3 * x[:, 0])) + 0.04 * torch.randn(BATCH)
        loss = -model(x).log_prob(y).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
