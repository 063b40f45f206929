"""vturrisi/solo-learn#135: "Is the self.encoder learning even after feats.detach()?" """

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class BarlowTwins(nn.Module):
    def __init__(self, dim=32, proj=16, classes=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24))
        self.projector = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, proj))
        self.classifier = nn.Linear(24, classes)

    def base_forward(self, x):
        feats = self.encoder(x)
        return self.projector(feats), self.classifier(feats.detach())


def barlow_loss(z1, z2, lamb=5e-3, scale=0.1):
    n = len(z1)
    z1, z2 = F.batch_norm(z1, None, None, training=True), F.batch_norm(z2, None, None, training=True)
    corr = z1.t() @ z2 / n
    cdif = (corr - torch.eye(corr.size(0))).pow(2)
    off = ~torch.eye(corr.size(0), dtype=torch.bool)
    cdif = torch.where(off, cdif * lamb, cdif)
    return scale * cdif.sum()


def build(bad: bool):
    torch.manual_seed(44)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(44)
    model = BarlowTwins()
    classifier = list(model.classifier.parameters())
    ssl = [p for n, p in model.named_parameters() if not n.startswith("classifier")]
    optimizer = torch.optim.SGD(
        [{"params": ssl}, {"params": classifier, "lr": 0.3, "weight_decay": 0.0}],
        lr=0.1,
        momentum=0.9,
        weight_decay=1e-5,
    )
    centres = torch.randn(6, 32, generator=gen)

    def step(i):
        y = torch.randint(0, 6, (128,), generator=gen)
        base = centres[y] + 0.4 * torch.randn(128, 32, generator=gen)
        z1, logits = model.base_forward(base + 0.5 * torch.randn(128, 32, generator=gen))
        z2, _ = model.base_forward(base + 0.5 * torch.randn(128, 32, generator=gen))
        loss = barlow_loss(z1, z2) + F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
