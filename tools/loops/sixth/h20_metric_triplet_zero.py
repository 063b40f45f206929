"""KevinMusgrave/pytorch-metric-learning#268: with TripletMarginMiner "the loss is always 0. Is this normal?" """

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class TripletMarginMiner:
    def __init__(self, margin=0.2):
        self.margin = margin

    def __call__(self, emb, labels):
        dist = torch.cdist(emb, emb)
        same = labels[:, None] == labels[None]
        ap = (same & ~torch.eye(len(labels), dtype=torch.bool)).unsqueeze(2)
        mask = ap & (~same).unsqueeze(1)
        gap = dist.unsqueeze(1) - dist.unsqueeze(2)
        return (mask & (gap < self.margin)).nonzero(as_tuple=True), mask.sum()


class EmbedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.embedder = nn.Linear(24, 8)

    def forward(self, x):
        return F.normalize(self.embedder(self.trunk(x)))


def build(bad: bool):
    torch.manual_seed(50)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(50)
    model = EmbedNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    miner = TripletMarginMiner()
    centres = torch.randn(5, 24, generator=gen)

    def step(i):
        labels = torch.randint(0, 5, (24,), generator=gen)
        emb = model(centres[labels] + 0.8 * torch.randn(24, 24, generator=gen))
        (a, p, n), total = miner(emb.detach(), labels)
        if len(a):
            loss = F.relu((emb[a] - emb[p]).norm(dim=1) - (emb[a] - emb[n]).norm(dim=1) + 0.2).mean()
        else:
            loss = emb.sum() * 0.0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(len(a) / max(int(total), 1))

    return model, optimizer, step
