"""After fxia22/pointnet.pytorch#33.

Story: PointNet classification on point clouds; the class scores come out wrong
and the loss barely falls.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class STN3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 16, 1)
        self.conv2 = nn.Conv1d(16, 32, 1)
        self.fc1 = nn.Linear(32, 16)
        self.fc2 = nn.Linear(16, 9)

    def forward(self, x):
        b = x.size(0)
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x)).max(2).values
        x = self.fc2(torch.relu(self.fc1(x)))
        return x.view(b, 3, 3) + torch.eye(3)


class PointNetfeat(nn.Module):
    def __init__(self):
        super().__init__()
        self.stn = STN3d()
        self.conv1 = nn.Conv1d(3, 24, 1)
        self.bn1 = nn.BatchNorm1d(24)
        self.conv2 = nn.Conv1d(24, 48, 1)
        self.bn2 = nn.BatchNorm1d(48)

    def forward(self, x):
        x = torch.bmm(x.transpose(2, 1), self.stn(x)).transpose(2, 1)
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x)).max(2).values


class PointNetCls(nn.Module):
    def __init__(self, k=4, score_dim=1):
        super().__init__()
        self.feat = PointNetfeat()
        self.fc1 = nn.Linear(48, 32)
        self.bn1 = nn.BatchNorm1d(32)
        self.fc2 = nn.Linear(32, k)
        self.score_dim = score_dim

    def forward(self, x):
        x = torch.relu(self.bn1(self.fc1(self.feat(x))))
        return F.log_softmax(self.fc2(x), dim=self.score_dim)


def sample_shapes(batch=32, n=64):
    label = torch.randint(0, 4, (batch,))
    p = torch.randn(batch, n, 3)
    sphere = F.normalize(p, dim=-1)
    cube = p / p.abs().amax(-1, keepdim=True)
    disc = torch.cat([sphere[..., :2] * torch.rand(batch, n, 1).sqrt(), 0 * p[..., :1]], -1)
    cyl = torch.cat([F.normalize(p[..., :2], dim=-1), torch.rand(batch, n, 1) * 2 - 1], -1)
    pts = torch.stack([sphere, cube, disc, cyl], 1)[torch.arange(batch), label]
    angle = torch.rand(batch) * 6.28
    c, s, o, i = angle.cos(), angle.sin(), torch.zeros(batch), torch.ones(batch)
    rot = torch.stack([c, -s, o, s, c, o, o, o, i], 1).view(batch, 3, 3)
    return (pts @ rot + 0.02 * torch.randn_like(pts)).transpose(2, 1), label


@torch.no_grad()
def test_accuracy(classifier):
    classifier.eval()
    points, target = sample_shapes(100)
    guess = torch.cat([classifier(p[None]).argmax(1) for p in points])
    return (guess == target).float().mean().item()


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    classifier = PointNetCls(score_dim=1 if mended else 0)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=2e-3)
    tick.model(classifier)
    tick.optimizer(optimizer)
    losses = []
    for i in range(130):
        points, target = sample_shapes()
        optimizer.zero_grad()
        classifier.train()
        pred = classifier(points)
        loss = F.nll_loss(pred, target)
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    LAST = test_accuracy(classifier)
    return losses
