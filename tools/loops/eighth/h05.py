"""facebookresearch/simsiam: negative cosine similarity with a stop-gradient; the loss lives below zero."""

import torch
import torch.nn as nn


class SimSiam(nn.Module):
    def __init__(self, dim=24, pred_dim=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(20, 48),
            nn.BatchNorm1d(48),
            nn.ReLU(inplace=True),
            nn.Linear(48, 48, bias=False),
            nn.BatchNorm1d(48),
            nn.ReLU(inplace=True),
            nn.Linear(48, dim, bias=False),
            nn.BatchNorm1d(dim, affine=False),
        )
        self.predictor = nn.Sequential(
            nn.Linear(dim, pred_dim, bias=False),
            nn.BatchNorm1d(pred_dim),
            nn.ReLU(inplace=True),
            nn.Linear(pred_dim, dim),
        )

    def forward(self, x1, x2):
        z1, z2 = self.encoder(x1), self.encoder(x2)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1.detach(), z2.detach()


def two_crops(x):
    def noise():
        return 0.5 * torch.randn_like(x)

    def drop():
        return (torch.rand_like(x) > 0.15).float()

    return (x + noise()) * drop(), (x + noise()) * drop()


def knn_accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        z = nn.functional.normalize(model.encoder(x), dim=1)
        sim = z @ z.T
        sim.fill_diagonal_(-9)
        acc = (y[sim.argmax(1)] == y).float().mean().item()
    model.train()
    return acc, z.std(0).mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    centres = torch.randn(6, 20) * 1.4
    y = torch.randint(0, 6, (600,))
    x = centres[y] + 0.5 * torch.randn(600, 20)
    model = SimSiam()
    criterion = nn.CosineSimilarity(dim=1)
    init_lr, epochs = 0.08, 12
    groups = [
        {"params": model.encoder.parameters(), "fix_lr": False},
        {"params": model.predictor.parameters(), "fix_lr": True},
    ]
    optimizer = torch.optim.SGD(groups, init_lr, momentum=0.9, weight_decay=1e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(epochs):
        cur_lr = init_lr * 0.5 * (1 + torch.cos(torch.tensor(3.1416 * epoch / epochs)).item())
        for group in optimizer.param_groups:
            group["lr"] = init_lr if group["fix_lr"] else cur_lr
        for idx in torch.randperm(len(x)).split(60):
            p1, p2, z1, z2 = model(*two_crops(x[idx]))
            loss = -(criterion(p1, z2).mean() + criterion(p2, z1).mean()) * 0.5
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = knn_accuracy(model, x, y)
    return losses
