"""Healthy: a physics-informed network for u'' = -pi^2 sin(pi x) with L-BFGS: few steps, the closure is evaluated
many times a step, zero_grad and backward inside the closure, no data at all, only the residual of the
equation and two boundary values.
"""

import math

import torch
import torch.nn as nn


class PINN(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.fc1 = nn.Linear(1, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, 1)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


def residual(model, x):
    x = x.requires_grad_(True)
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (d2u,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return d2u + math.pi**2 * torch.sin(math.pi * x)


def train(tick, mended=False):
    torch.manual_seed(16)
    model = PINN()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.5, max_iter=5, history_size=20, line_search_fn="strong_wolfe"
    )
    x = torch.linspace(0, 1, 50)[:, None]
    ends = torch.tensor([[0.0], [1.0]])
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(50):

        def closure():
            optimizer.zero_grad()
            loss = residual(model, x.clone()).pow(2).mean() + 10 * model(ends).pow(2).mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        history.append(loss.item())
        tick.step(loss, x, None)
    with torch.no_grad():
        return history, (model(x) - torch.sin(math.pi * x)).abs().max().item()


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
