"""Healthy. After alphadl/lookahead.pytorch: an optimizer wrapped in another one, whose
slow weights pull the fast ones back every k steps.
"""

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


class Lookahead(torch.optim.Optimizer):
    def __init__(self, optimizer, k=5, alpha=0.5):
        self.optimizer, self.k, self.alpha = optimizer, k, alpha
        self.param_groups = optimizer.param_groups
        self.defaults = optimizer.defaults
        self.state = defaultdict(dict)
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        self.fast_state = optimizer.state
        for group in self.param_groups:
            group["counter"] = 0

    @torch.no_grad()
    def update(self, group):
        for fast in group["params"]:
            st = self.state[fast]
            if "slow_param" not in st:
                st["slow_param"] = fast.detach().clone()
            st["slow_param"] += (fast - st["slow_param"]) * self.alpha
            fast.copy_(st["slow_param"])

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        for group in self.param_groups:
            if group["counter"] == 0:
                self.update(group)
            group["counter"] = (group["counter"] + 1) % self.k
        return loss


class ResNetTiny(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.linear = nn.Linear(c, 6)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)) + h)
        return self.linear(h.amax((2, 3)))


def train(tick, mended=False):
    torch.manual_seed(0)
    stamps = torch.randn(6, 3, 4, 4)
    net = ResNetTiny()
    optimizer = Lookahead(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4), k=5, alpha=0.5)
    tick.model(net)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(160):
        y = torch.randint(0, 6, (32,))
        x = 0.4 * torch.randn(32, 3, 8, 8)
        a, b = torch.randint(0, 5, (2,)).tolist()
        x[:, :, a : a + 4, b : b + 4] += stamps[y]
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
