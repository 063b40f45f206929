"""After wanggrun/triplet#1.

Story: self-supervised training where the InfoNCE loss was replaced by a triplet
loss; the loss goes to the margin and stays, all examples get one embedding.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class Backbone(nn.Module):
    def __init__(self, dim=32, hidden=64):
        super().__init__()
        self.layer1 = nn.Linear(dim, hidden)
        self.layer2 = nn.Linear(hidden, hidden)

    def forward(self, x):
        return torch.relu(self.layer2(torch.relu(self.layer1(x))))


class TripletHead(nn.Module):
    def __init__(self, margin=0.5, rank=1):
        super().__init__()
        self.margin = margin
        self.rank = rank

    def forward(self, q, k):
        dist = torch.cdist(q, k).clamp_min(1e-6)
        pos = dist.diagonal()
        off = dist + 1e6 * torch.eye(len(q))
        neg = off.sort(1).values[:, self.rank - 1]
        return F.relu(pos - neg + self.margin).mean()


class TripletSSL(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.backbone = Backbone()
        self.neck = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.head = TripletHead(rank=rank)

    def embed(self, x):
        return self.neck(self.backbone(x))

    def forward(self, view1, view2):
        return self.head(self.embed(view1), self.embed(view2))


class TwoViews:
    def __init__(self, images):
        self.images = images

    def augment(self, x):
        keep = (torch.rand_like(x) > 0.15).float()
        return x * keep + 0.25 * torch.randn_like(x)

    def sample(self, batch):
        x = self.images[torch.randint(0, len(self.images), (batch,))]
        return self.augment(x), self.augment(x)


def make_images(n=512, n_proto=20):
    proto = torch.randn(n_proto, 32)
    return proto[torch.arange(n) % n_proto] + 0.25 * torch.randn(n, 32)


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    data = TwoViews(make_images())
    batch = 64
    model = TripletSSL(rank=batch // 2 if mended else 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for it in range(250):
        v1, v2 = data.sample(batch)
        loss = model(v1, v2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    with torch.no_grad():
        z = model.embed(data.images)
        LAST = (z.std(0).mean().item(),)
    return losses
