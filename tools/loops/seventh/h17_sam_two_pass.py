"""Healthy: sharpness-aware minimisation. Two forward and backward passes in each step, the weights are moved
uphill and back in between; gradients at the end of the step are those at the perturbed point.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    def grad_norm(self):
        return torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"] if p.grad is not None]).norm()

    @torch.no_grad()
    def first_step(self):
        norm = self.grad_norm() + 1e-12
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                e = p.grad * (group["rho"] / norm)
                p.add_(e)
                self.state[p]["e_w"] = e
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(self.state[p]["e_w"])
        self.base_optimizer.step()

    def step(self, closure=None):
        self.second_step()


class WineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(11, 32)
        self.fc2 = nn.Linear(32, 32)
        self.fc3 = nn.Linear(32, 4)

    def forward(self, x):
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x)))))


def wines(n):
    x = torch.randn(n, 11)
    score = x[:, 0] + x[:, 1] * x[:, 2] * 0.5 - 0.8 * x[:, 3].abs()
    return x, torch.bucketize(score, torch.tensor([-1.5, -0.5, 0.5]))


def train(tick, mended=False):
    torch.manual_seed(17)
    model = WineNet()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(250):
        x, y = wines(64)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.first_step()
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step()
        history.append(loss.item())
        tick.step(loss, x, y)
        optimizer.zero_grad()
    with torch.no_grad():
        x, y = wines(1000)
        return history, (model(x).argmax(1) == y).float().mean().item()


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
