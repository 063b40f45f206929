"""Healthy: SimCLR on two augmented views; the NT-Xent loss starts near log(2N-1) and falls only to a floor,
labels are never used; a nearest-centroid check on the features shows the learning.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BASE = torch.randn(8, 32, generator=torch.Generator().manual_seed(9))


class SimCLR(nn.Module):
    def __init__(self, dim=32, hidden=64, out=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out, bias=False))

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)


def augment(x):
    keep = (torch.rand_like(x) > 0.25).float()
    return x * keep + 0.3 * torch.randn_like(x)


def samples(n):
    y = torch.randint(0, 8, (n,))
    return BASE[y] + 0.5 * torch.randn(n, 32), y


def nt_xent(z1, z2, temperature=0.3):
    z = torch.cat([z1, z2])
    sim = z @ z.T / temperature
    sim.fill_diagonal_(-1e9)
    n = len(z1)
    target = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(sim, target)


def train(tick, mended=False):
    torch.manual_seed(9)
    model = SimCLR()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-6)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(200):
        x, _ = samples(48)
        loss = nt_xent(model(augment(x)), model(augment(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, None)
    with torch.no_grad():
        a, ya = samples(400)
        b, yb = samples(400)
        fa, fb = model(a), model(b)
        cent = F.normalize(torch.stack([fa[ya == k].mean(0) for k in range(8)]), dim=1)
        return history, ((fb @ cent.T).argmax(1) == yb).float().mean().item()


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
