"""After kaize0409/Meta-GDN_AnomalyDetection#1: "Model is not learning and epoch
loss high".

Few-shot network anomaly detection: a graph deviation network scores the nodes
of an attributed review graph; a deviation loss against a Gaussian reference.
"""

import torch
from torch import nn


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias


class GDN(nn.Module):
    def __init__(self, nfeat, nhid=32):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nhid)
        self.abnormal = nn.Sequential(nn.Linear(nhid, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, adj):
        h = torch.relu(self.gc1(x, adj))
        h = torch.relu(self.gc2(h, adj))
        return self.abnormal(h).squeeze(1)


def deviation_loss(y_true, y_pred):
    ref = torch.randn(5000)
    dev = (y_pred - ref.mean()) / ref.std()
    inlier_loss = dev.abs()
    outlier_loss = torch.clamp(5.0 - dev, min=0)
    return ((1 - y_true) * inlier_loss + y_true * outlier_loss).mean()


def normalize_features(x):
    return x / x.sum(1, keepdim=True).clamp(min=1) * x.size(1)


def load_yelp(mended):
    g = torch.Generator().manual_seed(0)
    n, f = 240, 40
    y = torch.zeros(n)
    y[torch.randperm(n, generator=g)[:24]] = 1
    rate = torch.ones(n, f)
    rate[y == 1, :8] = 4
    length = torch.exp(1.4 * torch.randn(n, 1, generator=g)) * 60
    x = torch.poisson(rate * length, generator=g)
    adj = (torch.rand(n, n, generator=g) < 0.006).float()
    adj = ((adj + adj.t()) > 0).float() + 3 * torch.eye(n)
    adj = adj / adj.sum(1, keepdim=True)
    if mended:
        x = normalize_features(x)
    return x, adj, y


def score(model, mended):
    x, adj, y = load_yelp(mended)
    with torch.no_grad():
        s = model(x, adj)
    return (s[y == 1][:, None] > s[y == 0][None]).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(0)
    x, adj, y = load_yelp(mended)
    model = GDN(x.size(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    pos, neg = (y == 1).nonzero().squeeze(1), (y == 0).nonzero().squeeze(1)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(200):
        idx = torch.cat([pos[torch.randint(0, len(pos), (8,))], neg[torch.randint(0, len(neg), (8,))]])
        loss = deviation_loss(y[idx], model(x, adj)[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
