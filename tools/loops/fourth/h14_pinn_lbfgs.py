"""NeuroDiffGym/neurodiffeq#83: LBFGS needs a closure, in which the loss is computed many times for a single step.

A network is fitted to u'' = -pi^2 sin(pi x) with u(0) = u(1) = 0; the input itself needs gradients.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 60
HISTORY: list[float] = []
POINTS = 40


class Solution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def residual(model: nn.Module, x: Tensor) -> Tensor:
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return ddu + torch.pi**2 * torch.sin(torch.pi * x)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(14)
    HISTORY.clear()
    model = Solution()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=20)
    x = torch.linspace(0, 1, POINTS)[:, None].requires_grad_(True)
    ends = torch.tensor([[0.0], [1.0]])

    def step(i: int) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = residual(model, x).pow(2).mean() + 10.0 * model(ends).pow(2).sum()
            loss.backward()
            return loss

        HISTORY.append(float(optimizer.step(closure)))

    return model, optimizer, step
