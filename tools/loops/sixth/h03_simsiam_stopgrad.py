"""PatrickHua/SimSiam#39: "There should be a stop gradient in the simsiam model"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


def D(p, z):
    return -F.cosine_similarity(p, z.detach(), dim=-1).mean()


class SimSiam(nn.Module):
    def __init__(self, dim=24, proj=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, 48), nn.BatchNorm1d(48), nn.ReLU())
        self.projector = nn.Sequential(
            nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, proj), nn.BatchNorm1d(proj, affine=False)
        )
        self.predictor = nn.Sequential(nn.Linear(proj, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, proj))

    def forward(self, x1, x2):
        z1, z2 = self.projector(self.backbone(x1)), self.projector(self.backbone(x2))
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return D(p1, z2) / 2 + D(p2, z1) / 2


def build(bad: bool):
    torch.manual_seed(33)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(33)
    model = SimSiam()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    basis = torch.randn(5, 24, generator=gen)

    def step(i):
        content = torch.randn(128, 5, generator=gen) @ basis
        x1 = content + 0.8 * torch.randn(128, 24, generator=gen)
        x2 = content + 0.8 * torch.randn(128, 24, generator=gen)
        loss = model(x1, x2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
