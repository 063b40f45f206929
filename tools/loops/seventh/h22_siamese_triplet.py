"""Healthy: a Siamese network with a triplet margin loss. Soon most triplets satisfy the margin, many batches
have a loss of exactly zero and with it gradients of exactly zero, which is what success looks like here.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

PEOPLE = torch.randn(20, 40, generator=torch.Generator().manual_seed(22))


class SiameseNet(nn.Module):
    def __init__(self, dim=40, emb=12):
        super().__init__()
        self.fc1 = nn.Linear(dim, 64)
        self.bn = nn.BatchNorm1d(64)
        self.fc2 = nn.Linear(64, emb)

    def forward(self, x):
        return F.normalize(self.fc2(F.relu(self.bn(self.fc1(x)))), dim=1)


def triplets(n):
    a = torch.randint(0, 20, (n,))
    b = (a + torch.randint(1, 20, (n,))) % 20

    def noise():
        return 0.6 * torch.randn(n, 40)

    return PEOPLE[a] + noise(), PEOPLE[a] + noise(), PEOPLE[b] + noise()


def train(tick, mended=False):
    torch.manual_seed(22)
    model = SiameseNet()
    criterion = nn.TripletMarginLoss(margin=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(200):
        anchor, positive, negative = triplets(16)
        out = model(torch.cat([anchor, positive, negative]))
        loss = criterion(*out.chunk(3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, torch.stack([anchor, positive, negative]), None)
    model.eval()
    with torch.no_grad():
        a, p, n = (model(t) for t in triplets(500))
        return history, ((a - p).norm(dim=1) < (a - n).norm(dim=1)).float().mean().item()


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
