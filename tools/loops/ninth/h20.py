"""Healthy. After jakesnell/prototypical-networks: every step is another task with other
classes, there is no classifier head, the learning rate is halved now and then.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Flatten(nn.Module):
    def forward(self, x):
        return x.view(x.size(0), -1)


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


class Protonet(nn.Module):
    def __init__(self, hid=16, z=16):
        super().__init__()
        self.encoder = nn.Sequential(conv_block(1, hid), conv_block(hid, z), Flatten())

    def loss(self, xs, xq):
        n_class, n_support, n_query = xs.size(0), xs.size(1), xq.size(1)
        z = self.encoder(torch.cat([xs.flatten(0, 1), xq.flatten(0, 1)]))
        proto = z[: n_class * n_support].view(n_class, n_support, -1).mean(1)
        dists = torch.cdist(z[n_class * n_support :], proto).pow(2)
        log_p = F.log_softmax(-dists, dim=1)
        target = torch.arange(n_class).repeat_interleave(n_query)
        return F.nll_loss(log_p, target)


def train(tick, mended=False):
    torch.manual_seed(0)
    alphabet = (torch.rand(60, 1, 4, 4) > 0.5).float().repeat_interleave(2, 2).repeat_interleave(2, 3)
    model = Protonet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, gamma=0.5)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _episode in range(150):
        cls = torch.randperm(60)[:8]

        def draw(k, cls=cls):
            return alphabet[cls][:, None] + 0.9 * torch.randn(8, k, 1, 8, 8)

        loss = model.loss(draw(2), draw(5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
