"""Healthy. After rahulvigneswaran/Lottery-Ticket-Hypothesis-in-Pytorch: nine tenths of
the weights pruned to zero, the rest rewound, gradients of the pruned ones set to zero.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class fc1(nn.Module):
    def __init__(self, num_classes=6):
        super().__init__()
        self.classifier = nn.Sequential(
            nn.Linear(64, 100),
            nn.ReLU(inplace=True),
            nn.Linear(100, 60),
            nn.ReLU(inplace=True),
            nn.Linear(60, num_classes),
        )

    def forward(self, x):
        return self.classifier(torch.flatten(x, 1))


def prune_by_percentile(model, percent):
    masks = {}
    for name, p in model.named_parameters():
        if "weight" in name:
            masks[name] = (p.abs() > torch.quantile(p.detach().abs().flatten(), percent / 100.0)).float()
    return masks


def epoch_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    for name, p in model.named_parameters():
        if "weight" in name:
            p.grad.data = torch.where(p.data.abs() < 1e-6, torch.zeros_like(p.grad), p.grad)
    optimizer.step()
    return loss


def train(tick, mended=False):
    torch.manual_seed(0)
    w = torch.randn(6, 1, 8, 8)
    y = torch.randint(0, 6, (1200,))
    x = w[y] + 1.2 * torch.randn(1200, 1, 8, 8)
    model = fc1()
    initial_state_dict = copy.deepcopy(model.state_dict())
    pre = torch.optim.Adam(model.parameters(), lr=1.2e-3, weight_decay=1e-4)
    for _i in range(80):
        idx = torch.randint(0, 1200, (60,))
        epoch_step(model, pre, x[idx], y[idx])
    masks = prune_by_percentile(model, 90)
    for name, p in model.named_parameters():
        p.data = initial_state_dict[name] * masks[name] if name in masks else initial_state_dict[name].clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.2e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _i in range(250):
        idx = torch.randint(0, 1200, (60,))
        loss = epoch_step(model, optimizer, x[idx], y[idx])
        losses.append(loss.item())
        tick.step(loss)
    return losses
