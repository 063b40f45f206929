"""davda54/sam: sharpness-aware minimisation; two backward passes a step, the weights are moved up the slope
and back again before the base optimizer acts."""

import torch
import torch.nn as nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]))
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(12 * 4, 4)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc(self.drop(x.flatten(1)))


def smooth_crossentropy(pred, gold, smoothing=0.1):
    n = pred.size(1)
    one_hot = torch.full_like(pred, smoothing / (n - 1)).scatter_(1, gold[:, None], 1.0 - smoothing)
    return nn.functional.kl_div(pred.log_softmax(1), one_hot, reduction="none").sum(-1).mean()


def train(tick, mended=False):
    torch.manual_seed(1)
    proto = torch.randn(4, 1, 8, 8)
    y = torch.randint(0, 4, (400,))
    x = proto[y] + 0.9 * torch.randn(400, 1, 8, 8)
    model = SmallNet()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.3, lr=0.1, momentum=0.9, weight_decay=5e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(10):
        for idx in torch.randperm(400).split(25):
            loss = smooth_crossentropy(model(x[idx]), y[idx])
            loss.backward()
            optimizer.first_step()
            smooth_crossentropy(model(x[idx]), y[idx]).backward()
            optimizer.second_step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        train.final = (model.eval()(x).argmax(1) == y).float().mean().item()
    return losses
