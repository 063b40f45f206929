"""After KanishJebaMathewM/Truxify#13118: "MAML inner-loop ... the meta-model never
trains".

Demand forecasting for new cities with few trips: a meta-model is adapted on the
support set of each city and judged on its query set.
"""

import copy

import torch
from torch import nn
from torch.func import functional_call


class DemandNet(nn.Module):
    def __init__(self, in_dim=3, hidden=32):
        super().__init__()
        self.fc1 = nn.Linear(in_dim, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.fc2(torch.tanh(self.fc1(x))))).squeeze(1)


class MAML:
    def __init__(self, model, inner_lr=0.1, meta_lr=5e-3, inner_steps=1, mended=False):
        self.model, self.inner_lr, self.inner_steps, self.mended = model, inner_lr, inner_steps, mended
        self.criterion = nn.MSELoss()
        self.meta_optimizer = torch.optim.Adam(model.parameters(), lr=meta_lr)

    def inner_update(self, model, support_x, support_y):
        if self.mended:
            fast = dict(model.named_parameters())
            for _ in range(self.inner_steps):
                loss = self.criterion(functional_call(model, fast, (support_x,)), support_y)
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {n: p - self.inner_lr * g for (n, p), g in zip(fast.items(), grads)}
            return lambda x: functional_call(model, fast, (x,))
        adapted_model = copy.deepcopy(model)
        for _ in range(self.inner_steps):
            loss = self.criterion(adapted_model(support_x), support_y)
            grads = torch.autograd.grad(loss, list(adapted_model.parameters()), create_graph=True)
            for param, grad in zip(adapted_model.parameters(), grads):
                param.data -= self.inner_lr * grad
        return adapted_model

    def meta_train_step(self, tasks):
        meta_loss = 0
        for sx, sy, qx, qy in tasks:
            adapted = self.inner_update(self.model, sx, sy)
            meta_loss = meta_loss + self.criterion(adapted(qx), qy)
        meta_loss = meta_loss / len(tasks)
        self.meta_optimizer.zero_grad()
        meta_loss.backward()
        self.meta_optimizer.step()
        return meta_loss


BASE = torch.randn(3, 4, generator=torch.Generator().manual_seed(5))


def city(n=12):
    level, gain = torch.randn(1), 1 + 0.3 * torch.randn(1)
    x = torch.randn(2 * n, 3)
    y = gain * 1.5 * torch.sin(x @ BASE).sum(1) + level
    return x[:n], y[:n], x[n:], y[n:]


def train(tick, mended=False):
    torch.manual_seed(0)
    maml = MAML(DemandNet(), mended=mended)
    tick.model(maml.model)
    tick.optimizer(maml.meta_optimizer)
    losses = []
    for _ in range(110):
        meta_loss = maml.meta_train_step([city() for _ in range(6)])
        losses.append(meta_loss.item())
        tick.step(meta_loss)
    return losses
