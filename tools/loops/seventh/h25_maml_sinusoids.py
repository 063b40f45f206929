"""Healthy: MAML on sinusoids. Inner steps on functional copies of the weights, gradients of second order, a new
random task in every row: the meta loss is very noisy and its trend slow.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call


class Sine(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.fc1 = nn.Linear(1, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


def task():
    amp = 0.5 + 2 * torch.rand(1)
    phase = 3.14 * torch.rand(1)

    def sample(k):
        x = torch.rand(k, 1) * 6 - 3
        return x, amp * torch.sin(x + phase)

    return sample


def adapt(model, x, y, inner_lr=0.05, steps=1):
    params = dict(model.named_parameters())
    for _ in range(steps):
        loss = F.mse_loss(functional_call(model, params, (x,)), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        params = {k: p - inner_lr * g for (k, p), g in zip(params.items(), grads)}
    return params


def train(tick, mended=False):
    torch.manual_seed(25)
    model = Sine()
    meta_optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    tick.model(model)
    tick.optimizer(meta_optimizer)
    history = []
    for _it in range(250):
        meta_loss = 0.0
        xs, ys = [], []
        for _ in range(4):
            sample = task()
            params = adapt(model, *sample(10))
            xq, yq = sample(10)
            meta_loss = meta_loss + F.mse_loss(functional_call(model, params, (xq,)), yq) / 4
            xs.append(xq)
            ys.append(yq)
        meta_optimizer.zero_grad()
        meta_loss.backward()
        meta_optimizer.step()
        history.append(meta_loss.item())
        tick.step(meta_loss, torch.stack(xs), torch.stack(ys))
    after = 0.0
    for _ in range(100):
        sample = task()
        params = adapt(model, *sample(10), steps=3)
        x, y = sample(50)
        after += F.mse_loss(functional_call(model, params, (x,)), y).item() / 100
    return history, after


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
