"""PINA-org/PINA#100: an optimizer with a closure, here L-BFGS, solves the Poisson equation by a network.

One call of step() runs many forward and backward passes; there is no data, the target of the residual is zero.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

STEPS = 60
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class FeedForward(nn.Module):
    def __init__(self, layers: tuple[int, ...] = (1, 16, 16, 1)) -> None:
        super().__init__()
        stack: list[nn.Module] = []
        for before, after in pairwise(layers):
            stack += [nn.Linear(before, after), nn.Tanh()]
        self.model = nn.Sequential(*stack[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)


def residual(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """u'' = -pi^2 sin(pi x), whose solution with zero ends is sin(pi x)."""
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return ddu + torch.pi**2 * torch.sin(torch.pi * x)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(8)
    OTHERS.clear()
    LOG.clear()
    model = FeedForward()
    inside = torch.linspace(-1, 1, 42)[1:-1, None].requires_grad_()
    ends = torch.tensor([[-1.0], [1.0]])
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=20)

    def step(i: int) -> None:
        def closure() -> torch.Tensor:
            loss = residual(model, inside).pow(2).mean() + 10.0 * model(ends).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            return loss

        first = optimizer.step(closure)
        LOG.append(first.item())

    return model, optimizer, step
