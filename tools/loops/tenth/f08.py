"""After mlelarge/graph_neural_net#37.

Siamese graph network for matching the nodes of two noisy copies of a graph; each row of
the similarity matrix is a classification over the nodes of the other graph.  The learning
curve stayed nearly flat.
"""

import torch
import torch.nn as nn


class MlpBlock(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(in_features, out_features, 1),
            nn.ReLU(),
            nn.Conv2d(out_features, out_features, 1),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.convs(x)


class RegularBlock(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.mlp1 = MlpBlock(in_features, out_features)
        self.mlp2 = MlpBlock(in_features, out_features)
        self.last_layer = nn.Conv2d(in_features + out_features, out_features, 1)

    def forward(self, x):
        mult = self.mlp1(x) @ self.mlp2(x) / x.size(-1)
        return self.last_layer(torch.cat([x, mult], dim=1))


class NodeEmbedding(nn.Module):
    def __init__(self, in_features=2, features=16, out_features=16):
        super().__init__()
        self.blocks = nn.ModuleList([RegularBlock(in_features, features), RegularBlock(features, out_features)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.amax(dim=-1).transpose(1, 2)


class SiameseModel(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.node_embedder = NodeEmbedding()
        self.mended = mended

    def forward(self, g1, g2):
        e1, e2 = self.node_embedder(g1), self.node_embedder(g2)
        scores = e1 @ e2.transpose(1, 2)
        return scores if self.mended else torch.softmax(scores, dim=-1)


def make_pair(batch_size, n_vertices=20, noise=0.05):
    w = torch.rand(batch_size, n_vertices, n_vertices)
    w = (w + w.transpose(1, 2)) / 2
    n = noise * torch.randn_like(w)
    w2 = w + (n + n.transpose(1, 2)) / 2
    eye = torch.eye(n_vertices).expand_as(w)
    return torch.stack([w, eye], 1), torch.stack([w2, eye], 1)


def train(tick, mended=False):
    torch.manual_seed(5)
    model = SiameseModel(mended)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(170):
        g1, g2 = make_pair(6)
        scores = model(g1, g2)
        target = torch.arange(scores.size(1)).repeat(scores.size(0))
        loss = criterion(scores.flatten(0, 1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
