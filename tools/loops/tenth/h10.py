"""After davda54/sam: sharpness-aware minimisation, two forward-backward passes for a step,
the weights climb before they come down."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, adaptive=False, **kwargs):
        super().__init__(params, dict(rho=rho, adaptive=adaptive, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        raise RuntimeError("use first_step and second_step")


class WideNet(nn.Module):
    def __init__(self, n_in=20, n_out=5, width=64):
        super().__init__()
        self.fc1 = nn.Linear(n_in, width)
        self.bn = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, n_out)

    def forward(self, x):
        x = F.relu(self.bn(self.fc1(x)))
        return self.fc3(F.relu(self.fc2(x)))


def smooth_crossentropy(pred, gold, smoothing=0.1):
    n_class = pred.size(1)
    one_hot = torch.full_like(pred, smoothing / (n_class - 1))
    one_hot.scatter_(1, gold[:, None], 1.0 - smoothing)
    return F.kl_div(F.log_softmax(pred, dim=1), one_hot, reduction="none").sum(-1)


def train(tick, mended=False):
    torch.manual_seed(42)
    teacher = torch.randn(20, 5)
    x = torch.randn(512, 20)
    y = (x @ teacher).argmax(1)
    model = WideNet()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=2.0 / 4, lr=0.1, momentum=0.9, weight_decay=5e-4)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer.base_optimizer)
    model.train()
    for _epoch in range(14):
        for idx in torch.randperm(512).split(64):
            loss = smooth_crossentropy(model(x[idx]), y[idx]).mean()
            loss.backward()
            optimizer.first_step(zero_grad=True)
            smooth_crossentropy(model(x[idx]), y[idx]).mean().backward()
            optimizer.second_step(zero_grad=True)
            tick.step(loss)
            losses.append(loss.item())
    return losses
