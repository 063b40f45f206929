"""Healthy. After gpleiss/temperature_scaling: a trained, frozen classifier and one
single trainable number, fitted with LBFGS on the validation logits.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelWithTemperature(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.temperature = nn.Parameter(torch.ones(1) * 1.5)

    def temperature_scale(self, logits):
        return logits / self.temperature

    def forward(self, x):
        return self.temperature_scale(self.model(x))


def train(tick, mended=False):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    w = torch.randn(10, 4)
    x, xv = torch.randn(120, 10), torch.randn(300, 10)
    y, yv = (x @ w + 2 * torch.randn(120, 4)).argmax(1), (xv @ w + 2 * torch.randn(300, 4)).argmax(1)
    pre = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(120):
        pre.zero_grad()
        F.cross_entropy(net(x), y).backward()
        pre.step()
    scaled = ModelWithTemperature(net)
    for p in net.parameters():
        p.requires_grad_(False)
    nll_criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.LBFGS([scaled.temperature], lr=0.1, max_iter=4)
    net.eval()
    tick.model(scaled)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(25):

        def closure():
            optimizer.zero_grad()
            loss = nll_criterion(scaled(xv), yv)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        losses.append(loss.item())
        tick.step(loss)
    return losses
