"""After queenie88/A-GCN#4: "Question about gradient flow" (can W_phi and W_theta of the
adaptive adjacency be updated?).

Skeleton action recognition: an adaptive graph convolution computes its adjacency
from embedded joint features and mixes the joints with it.
"""

import torch
import torch.nn.functional as F
from torch import nn

JOINTS, CLASSES, KEYS = 9, 6, 16


class AdaptiveGCN(nn.Module):
    def __init__(self, in_channels, out_channels, inter_channels=8, cut=True):
        super().__init__()
        self.W_theta = nn.Linear(in_channels, inter_channels)
        self.W_phi = nn.Linear(in_channels, inter_channels)
        self.W_g = nn.Linear(in_channels, out_channels)
        self.down = nn.Linear(in_channels, out_channels)
        self.cut = cut

    def forward(self, x):
        theta, phi = self.W_theta(x), self.W_phi(x)
        adj = torch.softmax(theta @ phi.transpose(1, 2), dim=-1)
        if self.cut:
            adj = adj.detach()
        return F.relu(adj @ self.W_g(x) + self.down(x))


class Model(nn.Module):
    def __init__(self, cut=True):
        super().__init__()
        c = 2 * KEYS + CLASSES
        self.data_bn = nn.LayerNorm(c)
        self.l1 = AdaptiveGCN(c, 48, cut=cut)
        self.l2 = nn.Sequential(nn.Linear(48, 32), nn.ReLU())
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x):
        h = self.l1(self.data_bn(x))
        return self.fc(self.l2(h)[:, 0])


def batch(n):
    keys = torch.stack([torch.randperm(KEYS)[: JOINTS - 1] for _ in range(n)])
    vals = torch.randint(0, CLASSES, (n, JOINTS - 1))
    which = torch.randint(0, JOINTS - 1, (n,))
    x = torch.zeros(n, JOINTS, 2 * KEYS + CLASSES)
    x[:, 1:, :KEYS] = F.one_hot(keys, KEYS).float()
    x[:, 1:, 2 * KEYS :] = F.one_hot(vals, CLASSES).float()
    r = torch.arange(n)
    x[r, 0, KEYS + keys[r, which]] = 1
    return x, vals[r, which]


def score(model, mended):
    torch.manual_seed(7)
    x, y = batch(500)
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    model = Model(cut=not mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(250):
        x, y = batch(96)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
